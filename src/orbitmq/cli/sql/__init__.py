"""The `orbitmq sql` command."""
