"""Topics kept as Parquet: the directory of an archive, and the job that adds to it."""
