"""Topics and subscription groups: versioned, persisted, administered."""
