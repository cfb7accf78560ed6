"""Escape: the delay levels and the timer of a slave that acts as master deliver to other masters."""
