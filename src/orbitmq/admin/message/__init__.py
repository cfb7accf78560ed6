"""Messages: look-ups, reads, delivery tracks, resending, dead letters."""
