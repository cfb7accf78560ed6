"""Retention: expired and forced removal of log files, and what holds it back."""
