"""Topics: lists, descriptions, changes, order configuration, static topics."""
