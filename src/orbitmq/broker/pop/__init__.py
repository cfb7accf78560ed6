"""POP consumption: hand out, ack, change of the invisible time, revive."""
