"""Parser of an explained plan: the columns that each file source reads, by location."""

from __future__ import annotations

import re

_LOCATION = re.compile(r"^Location: \w+ \[(.*)\]$")
_SCHEMA = re.compile(r"^ReadSchema: struct<(.*)>$")


def columns_read(plan: str) -> dict[str, list[frozenset[str]]] | None:
    """By location, the columns that each scan of it reads, of a plan in the mode ``formatted``.

    None if the plan does not say it of every scan.
    """
    found: dict[str, list[frozenset[str]]] = {}
    location: str | None = None
    for line in plan.splitlines():
        if at := _LOCATION.match(line):
            if location is not None:
                return None
            location = at[1]
        elif line.startswith("ReadSchema: "):
            schema = _SCHEMA.match(line)
            if schema is None or location is None:
                return None
            found.setdefault(location, []).append(frozenset(_fields(schema[1])))
            location = None
    return found if location is None else None


def _fields(schema: str) -> list[str]:
    """The names of ``a:int,b:map<string,string>``."""
    names, depth, start = [], 0, 0
    for at, char in enumerate(schema + ","):
        if char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            if name := schema[start:at].partition(":")[0].strip():
                names.append(name)
            start = at + 1
    return names
