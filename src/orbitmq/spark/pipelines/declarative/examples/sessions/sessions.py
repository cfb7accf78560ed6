"""Clicks of the topic ``clicks`` as sessions: all that a user does without a pause of half an hour."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from orbitmq.spark.declarative import topic

CLICK = "user string, page string, at timestamp"


@dp.table(comment="One row per session that is over")
def sessions() -> DataFrame:
    clicks = topic("clicks", schema=CLICK, maxOffsetsPerTrigger=1_000_000)
    # A click may be ten minutes late; after that a session is final, and is written.
    late = clicks.withWatermark("at", "10 minutes")
    found = late.groupBy("user", f.session_window("at", "30 minutes").alias("session"))
    return found.agg(f.count("*").alias("clicks"), f.min_by("page", "at").alias("first_page")).select(
        "user", f.col("session.start").alias("began"), f.col("session.end").alias("ended"), "clicks", "first_page"
    )
