"""Look-ups of messages by key, id and offset."""
