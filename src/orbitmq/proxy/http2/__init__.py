"""Server side of gRPC over HTTP/2 (RFC 9113) on asyncio: connections, streams, flow control and limits.

Written for the calls of RocketMQ's clients, which are small and many: frames of one read are handled together, and
the responses of one loop iteration leave in one write. TLS and clear text share one port. Not here: what the calls
mean. No part of it knows protobuf.
"""
