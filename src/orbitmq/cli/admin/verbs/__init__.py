"""The verbs, one module per noun."""
