"""The `orbitmq quickstart` command and its tour."""
