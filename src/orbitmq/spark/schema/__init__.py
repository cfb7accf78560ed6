"""Columns of rows that the data sources produce."""
