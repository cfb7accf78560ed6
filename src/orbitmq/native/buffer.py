"""Memory that native functions and their Python twins read and write."""

from __future__ import annotations

import mmap

Buffer = mmap.mmap | bytearray
"""A mapped file, or the memory that stands for an empty one."""
