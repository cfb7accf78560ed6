"""From the commit log to consume queues and index (reput)."""
