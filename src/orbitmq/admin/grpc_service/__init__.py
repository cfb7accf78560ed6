"""Admin service of the gRPC protocol: the operator's client behind ``apache.rocketmq.v2.Admin``.

A gRPC server is given the table of its calls. Needs protobuf (``orbitmq[grpc]``).
"""
