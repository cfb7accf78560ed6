"""A driver with streaming queries over one topic, which runs until it is killed or one of the queries fails."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from orbitmq.spark import session
from support.spark.topic_copies import Copies

if __name__ == "__main__":
    nameserver, topic, folder, limit = sys.argv[1:]
    # Two tasks at a time, each of them tried up to four times.
    spark = session("copying", "local[2,4]")
    queries = Copies(spark, nameserver, topic, Path(folder)).start(int(limit))
    while all(query.isActive for query in queries):
        time.sleep(0.1)
    sys.exit("\n".join(str(query.exception()) for query in queries if not query.isActive))
