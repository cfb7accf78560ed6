"""Latencies counted in buckets that grow with them: however many there are, they take the same room."""

SUB_BITS = 6
SUB_BUCKETS = 1 << SUB_BITS
"""A power of two is cut into so many buckets: what is read back is off by 1 part in 64 at most."""

_MAX_BITS = 42
"""Two months in microseconds; what took longer counts as that."""


class Latencies:
    """Counts of microseconds."""

    __slots__ = ("_counts", "longest", "total")

    def __init__(self) -> None:
        self._counts = [0] * ((_MAX_BITS - SUB_BITS + 1) * SUB_BUCKETS)
        self.total = 0
        self.longest = 0

    def add(self, microseconds: int, count: int = 1) -> None:
        value = min(max(microseconds, 0), (1 << _MAX_BITS) - 1)
        self.longest = max(self.longest, value)
        if value >= SUB_BUCKETS:
            shift = value.bit_length() - SUB_BITS - 1
            value = shift * SUB_BUCKETS + (value >> shift)
        self._counts[value] += count
        self.total += count

    def quantile(self, part: float) -> int:
        """The microseconds that this part of them does not exceed; 0 if there are none."""
        rank = min(int(part * self.total), self.total - 1)
        seen = 0
        for number, count in enumerate(self._counts):
            seen += count
            if seen > rank:
                return min(_highest(number), self.longest)
        return 0


def _highest(number: int) -> int:
    """The largest value of a bucket."""
    if number < SUB_BUCKETS:
        return number
    shift = number // SUB_BUCKETS - 1
    return ((number - shift * SUB_BUCKETS + 1) << shift) - 1
