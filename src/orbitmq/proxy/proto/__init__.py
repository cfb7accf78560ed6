"""The protobuf messages of the gRPC protocol, from ``*.proto``.

``scripts/generate_grpc.py`` generates what is checked in beside them: ``descriptors.binpb``, which has all files as
one descriptor set, and the ``*_pb2.pyi`` stubs.
"""
