"""Definitions: topics, groups and settings of a cluster as one file, and the changes that a file would make."""
