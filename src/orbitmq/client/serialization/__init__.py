"""Bodies of messages: from and to bytes, JSON and objects of the application."""
