"""Broker settings: loading, validation, changes at run time, persistence."""
