"""The `orbitmq bench` command."""
