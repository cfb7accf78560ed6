"""Shared by pages and the REST interface, by subject: lists, searches, changes with their audit entries."""
