"""Servers of the gRPC protocol side by side: OrbitMQ with its gRPC port, and Apache's proxy in LOCAL mode.

The load is a Go program over the generated stubs of RocketMQ's own Go client (``load/``): sends, or receives of 32
messages with an acknowledgement for each, as the official clients do.
"""
