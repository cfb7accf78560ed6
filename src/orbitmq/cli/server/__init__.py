"""The server commands: serve, broker, nameserver; signals, log output, garbage collection."""
