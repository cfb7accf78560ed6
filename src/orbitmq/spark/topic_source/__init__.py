"""The data source `orbitmq`: topics as batch and streaming DataFrames."""
