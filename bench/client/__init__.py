"""Benchmarks of OrbitMQ's client and other clients against the same servers: ``python -m bench client``.

A client runs in a process of its own, for one round of one load. Like the rest of ``bench`` it reports and judges
nothing. ``window``, ``orbitmq_load`` and ``grpc_load`` are what runs in those processes: the last one in an
environment where nothing but the peer is installed, so they import no other part of ``bench``.
"""
