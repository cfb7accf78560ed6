"""A driver on a cluster of Spark's own: reads a topic, writes another, streams that into a third, and archives."""

from __future__ import annotations

import json
import os
import sys

from orbitmq.spark import session
from orbitmq.spark.pipelines.archive.job import archive

if __name__ == "__main__":
    master, nameserver, topic, copy, stream, checkpoint, archived = sys.argv[1:]
    spark = session(
        "standalone",
        master,
        **{
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        },
    )
    orders = spark.read.format("orbitmq").options(nameserver=nameserver, subscribe=topic).load()
    read = orders.selectExpr("count(*)", "sum(int(string(body)))").first()
    dear = orders.where("int(string(body)) >= 500").select("body", "tags", "keys")
    dear.write.format("orbitmq").options(nameserver=nameserver, topic=copy).mode("append").save()
    copied = spark.readStream.format("orbitmq").options(
        nameserver=nameserver, subscribe=copy, startingOffsets="earliest", maxOffsetsPerTrigger="200"
    )
    query = (
        copied.load()
        .selectExpr("string(int(string(body)) * 2) AS body", "tags")
        .writeStream.format("orbitmq")
        .options(nameserver=nameserver, topic=stream, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    kept = archive(spark, to=archived, topics=[topic], nameserver=nameserver, max_messages=600)
    reported = {"read": list(read or ()), "batches": len(query.recentProgress), "archived": kept.facts}
    json.dump(reported, sys.stdout)
    spark.stop()
