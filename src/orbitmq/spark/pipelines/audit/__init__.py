"""Audit: checks for lost, duplicated, disordered, slow and stuck messages, and the report of the findings."""
