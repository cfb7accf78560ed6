"""The changes of a table's rows, from the topic ``customers-changes``: each change is a message."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame

from orbitmq.spark.declarative import topic

CHANGE = "op string, id bigint, version bigint, name string, city string"


@dp.table(comment="Every change, as it came")
def customer_changes() -> DataFrame:
    return topic("customers-changes", schema=CHANGE)
