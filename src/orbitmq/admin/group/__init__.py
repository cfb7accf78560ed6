"""Consumer groups: lists, members, lag, changes, offsets."""
