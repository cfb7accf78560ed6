"""The defaults of the archive job, importable without Spark."""

ARCHIVE_GROUP = "ORBITMQ_ARCHIVE"
MAX_MESSAGES = 1_000_000
EVERY_SECONDS = 10.0
RETRY_SECONDS = 60.0
