"""The commit log: mapped files, append, scan."""
