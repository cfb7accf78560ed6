"""Consume queues: units, files, flush, repair."""
