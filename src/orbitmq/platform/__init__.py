"""The world that is handed in: disk, clock, event loop, settings, log lines, memory budget.

Imports no other package of OrbitMQ.
"""
