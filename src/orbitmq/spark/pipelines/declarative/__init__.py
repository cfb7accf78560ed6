"""Users' own pipelines in the files of Spark Declarative Pipelines: made, checked, run."""
