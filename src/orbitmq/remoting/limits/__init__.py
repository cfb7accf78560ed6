"""Limits of connections: memory, descriptors, fairness between connections."""
