"""Archives of topics as Parquet: the directory, and the job that adds to it."""
