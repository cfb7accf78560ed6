"""Message traces: recording, encoding, queries."""
