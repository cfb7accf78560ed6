"""Cache of compiled subscription expressions, bounded by their size in memory.

A pull or pop may carry its expression, so without a cache every such request would compile. Any client may send
another expression with each request, so the cache evicts the least recently used ones. Long expressions are keyed
by a digest: a look-up then neither stores nor compares their text.
"""

from __future__ import annotations

import collections
import hashlib
from typing import Generic, TypeVar

BYTE_LIMIT = 32 * 1024 * 1024
"""Enough for some 8,000 usual expressions, or a few of the longest."""

FIXED_COST = 2048
"""Size of the smallest compiled expression with its cache entry."""

COST_OF_CHARACTER = 100
"""Bytes of compiled form per character of text, measured for tags of one character, the worst case."""

LONGEST_KEY = 128
"""Characters of a key; of a longer expression the key is a digest."""

CompiledT = TypeVar("CompiledT")


class CompiledCache(Generic[CompiledT]):
    """LRU cache of compiled expressions by kind and text."""

    def __init__(self, byte_limit: int = BYTE_LIMIT) -> None:
        self._byte_limit = byte_limit
        self._entries: collections.OrderedDict[tuple[str | None, str | bytes], tuple[CompiledT, int]] = (
            collections.OrderedDict()
        )
        self.bytes_used = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, kind: str | None, text: str) -> CompiledT | None:
        """The compiled form of an expression, if it is cached."""
        key = _key(kind, text)
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, kind: str | None, text: str, compiled: CompiledT) -> None:
        """Cache a compiled expression, unless it would fill more than half of the cache."""
        cost = FIXED_COST + COST_OF_CHARACTER * len(text)
        if cost > self._byte_limit // 2:
            return
        key = _key(kind, text)
        replaced = self._entries.pop(key, None)
        if replaced is not None:
            self.bytes_used -= replaced[1]
        self._entries[key] = compiled, cost
        self.bytes_used += cost
        while self.bytes_used > self._byte_limit:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes_used -= freed


def _key(kind: str | None, text: str) -> tuple[str | None, str | bytes]:
    # The kind is also text of the client; kinds that compile are short.
    if len(text) <= LONGEST_KEY:
        return kind, text
    return kind, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
