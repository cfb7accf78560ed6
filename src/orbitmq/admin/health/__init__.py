"""Health of clusters: checks with reasons, and a bundle of a cluster's state for a bug report."""
