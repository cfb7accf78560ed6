"""The parser of DataFrame options: typed values from texts, with one error sentence per mistake."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_SIZE = re.compile(r"(\d{1,15})\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class OptionReader:
    """Reads options by their names in any case. Each mistake is an OptionError that names the option."""

    def __init__(
        self, options: Mapping[str, str], known: Sequence[str], purpose: str, ignored: Collection[str] = ()
    ) -> None:
        """``purpose`` is for error messages; ``ignored`` are options of Spark or the sink, in lower case."""
        self.given = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in self.given:
            if name not in names and name not in ignored:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(known)}"
                raise OptionError(f"there is no option {name!r} for {purpose}: {hint}")

    def has(self, name: str) -> bool:
        return name.lower() in self.given

    def text(self, name: str) -> str | None:
        """The value without blanks around it. Raises OptionError for blanks only."""
        value = self.given.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise OptionError(f"{name} is empty")
        return value.strip()

    def names(self, name: str) -> tuple[str, ...]:
        """A comma-separated list without repetitions."""
        value = self.text(name)
        if value is None:
            return ()
        found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not found:
            raise OptionError(f"{name}={value} names nothing")
        return found

    def one_of(self, name: str, choices: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is None:
            return None
        for choice in choices:
            if choice.lower() == value.lower():
                return choice
        raise OptionError(f"{name}={value} is not possible: it is one of {', '.join(choices)}")

    def boolean(self, name: str, default: bool) -> bool:
        value = self.one_of(name, ("true", "false"))
        return default if value is None else value == "true"

    def whole(self, name: str, least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", value) or int(value) < least:
            raise OptionError(f"{name}={value} is not possible: it is a whole number of {least} or more")
        return int(value)

    def number(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value):
            raise OptionError(f"{name}={value} is not possible: it is a number of 0 or more")
        return float(value)

    def size(self, name: str, default: int) -> int:
        """A size in bytes, with an optional unit k, m or g."""
        value = self.text(name)
        if value is None:
            return default
        match = _SIZE.fullmatch(value)
        if match is None or int(match[1]) < 1:
            raise OptionError(f"{name}={value} is not possible: it is a size in bytes, like 512k, 64m or 1g")
        return int(match[1]) * _UNITS[match[2].lower()]
