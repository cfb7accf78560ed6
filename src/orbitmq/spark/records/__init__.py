"""Columns of records, and their conversion to Arrow."""
