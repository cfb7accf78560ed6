"""Background work of a store: flush, checkpoint, time slices."""
