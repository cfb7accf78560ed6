"""Orders with their payments: two topics joined as they come."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from orbitmq.spark.declarative import topic


@dp.table(comment="Orders that were paid within an hour")
def paid_orders() -> DataFrame:
    orders = topic("orders", schema="order_id string, amount decimal(12,2), ordered_at timestamp")
    payments = topic("payments", schema="paid_id string, method string, paid_at timestamp")
    # The watermarks bound what Spark has to remember of either side.
    return (
        orders.withWatermark("ordered_at", "1 hour")
        .join(
            payments.withWatermark("paid_at", "1 hour"),
            f.expr("order_id = paid_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"),
        )
        .drop("paid_id")
    )
