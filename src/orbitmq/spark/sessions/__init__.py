"""Spark sessions: Java, environment, worker processes."""
