"""Messages that a consumer group gave up on, as alerts in the topic ``alerts``."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from orbitmq.spark.declarative import topic, topic_sink

GROUP = "billing"

topic_sink("alerts")


@dp.append_flow(target="alerts")
def dead_letters() -> DataFrame:
    letters = topic(f"%DLQ%{GROUP}")
    alert = f.struct(
        f.lit(GROUP).alias("group"),
        f.coalesce(f.col("properties")["RETRY_TOPIC"], f.col("topic")).alias("topic"),
        "unique_id",
        "keys",
        "reconsume_times",
        "store_timestamp",
    )
    return letters.select(f.to_json(alert).cast("binary").alias("body"), f.lit("dead-letter").alias("tags"), "keys")
