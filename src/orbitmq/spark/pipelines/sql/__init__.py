"""Topics and archives as one table, and queries over them."""
