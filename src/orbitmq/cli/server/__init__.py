"""The server commands: serve, broker, nameserver, proxy; signals, log output, garbage collection."""
