"""Lite topics of RocketMQ 5.5."""
