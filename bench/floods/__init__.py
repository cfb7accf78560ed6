"""Floods: the latency of a well-behaved client beside clients that behave badly."""
