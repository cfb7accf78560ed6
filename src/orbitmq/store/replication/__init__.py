"""Replication of the commit log: settings, frames, the master's side of a slave and the slave's side of its master.

Pure parts and store access only. Sockets are in ``broker/ha``.
"""
