"""The `orbitmq store` commands."""
