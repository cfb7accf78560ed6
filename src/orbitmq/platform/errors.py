"""Errors of OrbitMQ's files on disk. Every message says what to do about it."""

from __future__ import annotations


class StoreError(Exception):
    """An operation of a store failed."""


class StoreDamagedError(StoreError):
    """The files contradict each other in a way that recovery does not repair by itself."""


class DiskFaultError(StoreError):
    """The disk refused an operation: full, read-only, or failing."""
