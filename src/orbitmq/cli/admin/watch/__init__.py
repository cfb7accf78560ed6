"""Commands about a whole cluster: top, check, bundle, definitions."""
