"""Consumer offsets: table, requests, reset, lag."""
