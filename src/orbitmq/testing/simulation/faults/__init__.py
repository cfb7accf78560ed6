"""Faults of simulated runs: their kinds, and what lets them happen."""
