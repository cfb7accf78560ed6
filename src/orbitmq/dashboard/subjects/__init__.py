"""What pages and the REST interface share, by subject: lists, searches, changes with their audit entries."""
