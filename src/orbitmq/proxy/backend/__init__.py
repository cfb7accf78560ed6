"""Backends: what the gRPC server is in front of, the broker of this process or a cluster."""
