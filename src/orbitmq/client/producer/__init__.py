"""Producer: sending messages."""
