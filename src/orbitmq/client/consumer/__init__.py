"""Shared by all consumers: subscriptions, rebalance, offsets, process queues."""
