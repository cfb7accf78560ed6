"""Pull requests: a consumer reads a queue."""
