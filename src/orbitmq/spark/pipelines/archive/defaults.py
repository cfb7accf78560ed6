"""What an archive run does unless it is told otherwise. Known also where there is no Spark."""

ARCHIVE_GROUP = "ORBITMQ_ARCHIVE"
MAX_MESSAGES = 1_000_000
EVERY_SECONDS = 10.0
RETRY_SECONDS = 60.0
