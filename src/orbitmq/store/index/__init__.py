"""The key index: files, entries, look-ups."""
