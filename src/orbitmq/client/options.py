"""Options of clients: keywords are split by the dataclass that has the field, and checked against its type."""

from __future__ import annotations

import dataclasses
import datetime
import numbers
from typing import Any

from orbitmq.client.errors import InvalidOptionError

_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "bool": (bool, "True or False"),
    "int": (numbers.Integral, "a whole number"),
    "float": (numbers.Real, "a number"),
    "str": (str, "text"),
    "datetime.datetime": (datetime.datetime, "a datetime"),
    "None": (type(None), "None"),
}
"""What the parts of an annotation accept, and how they are called. Other annotations are not checked here."""

_PARTS: dict[str, tuple[str, str]] = {
    "Strategy": ("allocate", "an allocation strategy, such as AllocateAveragely()"),
    "Serializer": ("dumps", "a serializer, such as JsonSerializer()"),
    "Clock": ("now_ms", "a clock"),
    "Random": ("random", "a random.Random"),
    "ClientTls": ("context", "an orbitmq.remoting.ClientTls"),
}
"""Objects that are recognised by a method."""

KNOWN_ELSEWHERE = {
    "auto_offset_reset": "start_from",
    "batch_size": "consume_message_batch_max_size or pull_batch_size",
    "bootstrap_servers": "the address of the name servers as the first argument",
    "concurrency": "consume_thread_max",
    "group_id": "group",
    "max_retries": "max_reconsume_times or retry_times_when_send_failed",
    "name_server": "the address of the name servers as the first argument",
    "prefetch_count": "pull_threshold_for_queue",
    "retries": "retry_times_when_send_failed",
    "servers": "the address of the name servers as the first argument",
    "timeout": "send_msg_timeout or api_timeout",
}
"""Names of other clients, with what to use here."""


def split_options(options: dict[str, Any], *kinds: type) -> list[dict[str, Any]]:
    """Split options by the dataclass that has the field.

    Raises InvalidOptionError for an unknown name, and for a value of another type.
    """
    fields = [{field.name: str(field.type) for field in dataclasses.fields(kind) if field.init} for kind in kinds]
    annotations = {name: annotation for every in fields for name, annotation in every.items()}
    for name, value in options.items():
        if name not in annotations:
            import difflib  # noqa: PLC0415 - slow to import, for this sentence only

            near = [KNOWN_ELSEWHERE[name]] if name in KNOWN_ELSEWHERE else None
            near = near or difflib.get_close_matches(name, annotations, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise InvalidOptionError(f"there is no option {name}{hint}")
        _check_type(name, value, annotations[name])
    return [{name: value for name, value in options.items() if name in names} for names in fields]


def _check_type(name: str, value: Any, annotation: str) -> None:
    expected = []
    for part in annotation.split(" | "):
        if part in _KINDS:
            kind, words = _KINDS[part]
            if isinstance(value, kind) and (part == "bool" or not isinstance(value, bool)):
                return
        elif part in _PARTS:
            method, words = _PARTS[part]
            if callable(getattr(value, method, None)):
                return
        elif part.startswith("Callable["):
            words = "a function"
            if callable(value):
                return
        elif part.startswith("Mapping["):
            words = "a mapping"
            if hasattr(value, "keys"):
                return
        elif part.startswith(("Iterable[", "tuple[")):
            words = "a list or tuple"
            if hasattr(value, "__iter__") and not isinstance(value, str | bytes):
                return
        else:
            # Enumerations and classes of the client, which validate themselves.
            return
        expected.append(words)
    raise InvalidOptionError(f"{name} must be {' or '.join(expected)}, not {type(value).__name__}: {value!r}")
