"""Address patterns of ``plain_acl.yml``: ``10.1.2.3``, ``10.1.*.*``, ``10.1.2.3-9``, ``10.1.2.{3,5}``, lists."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.auth.decision import ip_address_of
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BETWEEN = re.compile(r",(?![^{]*\})")
"""Commas that are in no braces."""


class AddressPattern(NamedTuple):
    """A set of addresses of one version, by the numbers that each part may have; None is any number."""

    version: int
    parts: tuple[frozenset[int] | range | None, ...]

    def matches(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        if address.version != self.version:
            return False
        size = 1 if self.version == 4 else 2
        packed = address.packed
        numbers = (int.from_bytes(packed[at : at + size], "big") for at in range(0, len(packed), size))
        return all(part is None or number in part for part, number in zip(self.parts, numbers, strict=True))


def read_patterns(texts: Iterable[str], where: str) -> tuple[AddressPattern, ...]:
    """The patterns of a list; empty ones match nothing. Raises ConfigError."""
    found: list[AddressPattern] = []
    for text in texts:
        for one in _BETWEEN.split(text):
            if one.strip() == "*":
                found += (AddressPattern(4, (None,) * 4), AddressPattern(6, (None,) * 8))
            elif one.strip():
                try:
                    found.append(_pattern(one.strip()))
                except ValueError:
                    raise ConfigError(
                        f"{where}: {one.strip()[:80]!r} is not an address or a pattern of addresses"
                    ) from None
    return tuple(found)


def is_any_of(patterns: Iterable[AddressPattern], host: str) -> bool:
    """True if one of the patterns has this address."""
    address = ip_address_of(host)
    return address is not None and any(pattern.matches(address) for pattern in patterns)


def _pattern(text: str) -> AddressPattern:
    """Raises ValueError."""
    if not any(character in text for character in "*-{"):
        address = ipaddress.ip_address(text)
        size = 1 if address.version == 4 else 2
        packed = address.packed
        numbers = [int.from_bytes(packed[at : at + size], "big") for at in range(0, len(packed), size)]
        return AddressPattern(address.version, tuple(frozenset([number]) for number in numbers))
    version, separator, count, base, most = (6, ":", 8, 16, 0xFFFF) if ":" in text else (4, ".", 4, 10, 0xFF)
    parts = text.split(separator)
    if len(parts) != count:
        raise ValueError(text)
    return AddressPattern(version, tuple(_part(part, base, most) for part in parts))


def _part(text: str, base: int, most: int) -> frozenset[int] | range | None:
    if text == "*":
        return None
    if text.startswith("{") and text.endswith("}"):
        return frozenset(_number(one, base, most) for one in text[1:-1].split(","))
    first, dash, last = text.partition("-")
    if dash:
        return range(_number(first, base, most), _number(last, base, most) + 1)
    return frozenset([_number(text, base, most)])


def _number(text: str, base: int, most: int) -> int:
    number = int(text.strip(), base)
    if not 0 <= number <= most:
        raise ValueError(text)
    return number
