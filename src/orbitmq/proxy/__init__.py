"""gRPC protocol of RocketMQ 5.x: a server in front of the broker of this process (LOCAL) or a cluster (CLUSTER).

It translates calls to remoting requests and keeps what only clients of this protocol have: settings, telemetry
streams and renewed receipts. Not here: messages, queues and groups, which are the broker's. protobuf is
needed (``orbitmq[grpc]``) by everything but ``config`` and ``http2``.
"""
