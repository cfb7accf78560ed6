"""Push consumer: concurrent and orderly."""
