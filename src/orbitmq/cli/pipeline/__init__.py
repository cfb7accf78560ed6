"""The `orbitmq pipeline` commands."""
