"""The data source `orbitmq-store`: store directories as DataFrames."""
