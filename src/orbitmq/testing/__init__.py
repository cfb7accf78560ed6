"""What tests of OrbitMQ, and of what is built on it, run against instead of the real world.

Here are a disk that loses power and fails on request (``MemoryDisk``) and a clock that stands still until it is
told to move (``ManualClock``). They keep the same contracts as the machine's disk and clock, are driven by a
seed, and so replay a failure exactly.

Belongs here: stand-ins for the world outside the process. Does not belong here: stand-ins for OrbitMQ's own
parts, and anything that knows what a message is.
"""

from orbitmq.testing.clock import ManualClock
from orbitmq.testing.disk import BrokenMapError, MemoryDisk, PowerCut, UnreservedStoreError

__all__ = ["BrokenMapError", "ManualClock", "MemoryDisk", "PowerCut", "UnreservedStoreError"]
