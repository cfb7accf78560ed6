"""The sink of the data source `orbitmq`: rows become messages."""
