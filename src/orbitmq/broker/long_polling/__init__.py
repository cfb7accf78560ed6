"""Requests that wait for messages, and the listeners that wake them."""
