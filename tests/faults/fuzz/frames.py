"""The frame generator: batches of mutated requests, each batch a function of the seed and its number alone."""

from __future__ import annotations

import dataclasses
import enum
import random

from faults.fuzz import encodings
from faults.fuzz.bodies import Bodies
from faults.fuzz.safety import BROKER_NAME, OTHER_BROKER, ROUTE_CODES, without_protected_names
from faults.fuzz.templates import (
    BROKER,
    BUSY_CODES,
    CODES,
    FIELD_NAMES,
    KINDS,
    NAME_SERVER,
    NAME_SERVER_CODES,
    templates,
)
from faults.fuzz.values import CLIENTS, Values
from orbitmq.protocol.codes import RequestCode

BATCH_FRAMES = 50
"""Frames of a batch: what is in flight at one time on one connection, and the unit of repetition."""

MAX_FLIGHT_BYTES = 1 << 20
"""Huge frames are answered before the next ones are sent."""

ONEWAY = 2
_BROKEN = 0.04
_SEND_CODES = frozenset(
    {
        *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
        *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    }
)
_GROUP_FIELDS = frozenset({"consumerGroup", "producerGroup", "group", "groupName", "srcGroup", "destGroup", "a"})
_HOLDING = frozenset({"suspendTimeoutMillis", "pollTime"})
_NAMES = frozenset({"brokerName", "bname"})


class Fate(enum.Enum):
    """What the last frame of a flight does to its connection."""

    OPEN = enum.auto()
    MAY_CLOSE = enum.auto()
    """Its header may be refused, and the connection closed with it."""
    BROKEN = enum.auto()
    """Nothing after it can be understood."""


@dataclasses.dataclass(frozen=True, slots=True)
class Flight:
    """Frames that are sent at once."""

    frames: tuple[bytes, ...]
    fate: Fate


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """``BATCH_FRAMES`` frames for one server. ``bytewise``: written in pieces of a few bytes."""

    number: int
    target: str
    flights: tuple[Flight, ...]
    bytewise: bool
    codes: tuple[int, ...]
    """The request code of each frame, before any damage."""

    @property
    def first_frame(self) -> int:
        return self.number * BATCH_FRAMES

    @property
    def frames(self) -> list[bytes]:
        return [frame for flight in self.flights for frame in flight.frames]


def batch(seed: int, number: int) -> Batch:
    """The batch of this number."""
    source = random.Random(f"{seed}/{number}")
    maker = _Maker(source)
    target = NAME_SERVER if source.random() < 0.15 else BROKER
    codes, flights, pending = [], [], []
    size = 0
    for _ in range(BATCH_FRAMES):
        code, frame, fate = maker.frame(target)
        codes.append(code)
        pending.append(frame)
        size += len(frame)
        if fate is not Fate.OPEN or size > MAX_FLIGHT_BYTES:
            flights.append(Flight(tuple(pending), fate))
            pending, size = [], 0
    if pending:
        flights.append(Flight(tuple(pending), Fate.OPEN))
    return Batch(number, target, tuple(flights), source.random() < 0.02, tuple(codes))


def one_by_one(made: Batch) -> Batch:
    """The same frames, each answered before the next one is sent."""
    flights = []
    for flight in made.flights:
        for at, frame in enumerate(flight.frames, 1):
            flights.append(Flight((frame,), flight.fate if at == len(flight.frames) else Fate.OPEN))
    return dataclasses.replace(made, flights=tuple(flights))


def without(made: Batch, codes: frozenset[int]) -> Batch:
    """The same frames but those of these request codes; the others keep their bytes."""
    kept = iter([code not in codes for code in made.codes])
    flights = []
    for flight in made.flights:
        frames = tuple(frame for frame in flight.frames if next(kept))
        if frames:
            whole = frames[-1] is flight.frames[-1]
            flights.append(Flight(frames, flight.fate if whole else Fate.OPEN))
    return dataclasses.replace(
        made, flights=tuple(flights), codes=tuple(code for code in made.codes if code not in codes)
    )


class _Maker:
    """Makes the frames of one batch."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._values = Values(source)
        self._bodies = Bodies(source, self._values)

    def frame(self, target: str) -> tuple[int, bytes, Fate]:
        """A request code, a frame of it, and what it does to the connection."""
        draw = self._random
        code = self._code(target)
        template = draw.choice(templates()[code])
        pairs = list(template.fields.items())
        body = template.body
        self._aim(code, pairs)
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
            if (body and draw.random() < 0.25) or code == RequestCode.SEND_BATCH_MESSAGE:
                body = self._bodies.body(code, body)
            else:
                self._mutate(pairs)
        if code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG):
            body = self._bodies.body(code, body)
        pairs = [(without_protected_names(name), without_protected_names(value)) for name, value in pairs]
        if code in ROUTE_CODES:
            pairs = [(name, value.replace(BROKER_NAME, OTHER_BROKER)) for name, value in pairs]
        return code, *self._written(code, pairs, body)

    def _code(self, target: str) -> int:
        draw = self._random
        if draw.random() < 0.1:
            return draw.choice(CODES)
        if target == NAME_SERVER:
            return draw.choice(_NAME_SERVER_CODES)
        return draw.choice(BUSY_CODES) if draw.random() < 0.5 else draw.choice(CODES)

    def _aim(self, code: int, pairs: encodings.Pairs) -> None:
        """Give the fields values that reach the code behind the first checks."""
        draw, values = self._random, self._values
        for at, (name, value) in enumerate(pairs):
            if name in {"topic", "b", "originTopic"} and code != RequestCode.END_TRANSACTION:
                pairs[at] = name, values.topic()
            elif name in _GROUP_FIELDS:
                pairs[at] = name, values.group()
            elif name in _NAMES:
                pairs[at] = name, BROKER_NAME
            elif name in {"i", "properties"} and code in _SEND_CODES:
                pairs[at] = name, value if draw.random() < 0.2 else values.properties()
            elif name in _HOLDING:
                pairs[at] = name, draw.choice(("0", "0", "10", "500", "15000"))
            elif name == "invisibleTime":
                pairs[at] = name, draw.choice(("0", "100", "1000", "60000"))
            elif name in {"queueId", "e"}:
                pairs[at] = name, draw.choice(("0", "0", "1", "2", "-1"))
            elif name == "extraInfo":
                pairs[at] = name, values.receipt()
            elif name in {"exp", "subscription"}:
                pairs[at] = name, values.expression()
            elif name in {"expType", "expressionType"}:
                pairs[at] = name, draw.choice(("TAG", "SQL92", "SQL92"))
            elif name in {"clientId", "clientID"}:
                pairs[at] = name, draw.choice(CLIENTS)
            elif name in {"readQueueNums", "writeQueueNums"}:
                pairs[at] = name, draw.choice(("1", "4", "8", "16"))
            elif name in {"offset", "queueOffset", "commitOffset", "tranStateTableOffset", "commitLogOffset"}:
                pairs[at] = name, values.small()

    def _mutate(self, pairs: encodings.Pairs) -> None:
        draw, values = self._random, self._values
        if not pairs or draw.random() < 0.1:
            pairs.append((draw.choice(FIELD_NAMES), values.value()))
            return
        at = draw.randrange(len(pairs))
        name, value = pairs[at]
        action = draw.random()
        if action < 0.1:
            del pairs[at]
        elif action < 0.15:
            pairs.append((name, values.value()))
        elif action < 0.2:
            pairs[at] = draw.choice((name.upper(), name + " ", values.text(), "")), value
        elif action < 0.25:
            other = draw.randrange(len(pairs))
            pairs[at], pairs[other] = (name, pairs[other][1]), (pairs[other][0], value)
        elif action < 0.8 and KINDS.get(name, "s") != "s":
            pairs[at] = name, values.number()
        else:
            pairs[at] = name, values.value()

    def _written(self, code: int, pairs: encodings.Pairs, body: bytes) -> tuple[bytes, Fate]:
        draw = self._random
        flag = ONEWAY if draw.random() < 0.1 else 0
        opaque, version, language = draw.randrange(1, 1_000_000), 513, 0
        if draw.random() < 0.05:
            flag = draw.choice((1, 2, 3, 4, -1, 2**31 - 1, -(2**31)))
            opaque = draw.choice((0, -1, 2**31 - 1, -(2**31)))
            version = draw.choice((0, -1, 1, 120, 317, 493, 32767, -32768))
            language = draw.randrange(16)
        if draw.random() < 0.01:
            code = draw.choice((0, -1, 1, 99, 32767, 65535, 2**31 - 1, -(2**31), 200049))
        numbers = code, opaque, flag, version, language
        way = draw.random()
        if way < _BROKEN:
            header = encodings.json_header(numbers, pairs)
            return encodings.broken_frame(draw, encodings.framed(0, header, body)), Fate.BROKEN
        if way < 0.10:
            return encodings.framed(0, encodings.odd_json_header(draw, numbers, pairs), body), Fate.MAY_CLOSE
        if way < 0.13:
            return encodings.framed(1, encodings.damaged_binary_header(draw, numbers, pairs), body), Fate.MAY_CLOSE
        if way < 0.35 and 0 <= code <= 32767:
            return encodings.framed(1, encodings.binary_header(numbers, pairs), body), Fate.OPEN
        return encodings.framed(0, encodings.json_header(numbers, pairs), body), Fate.OPEN


_NAME_SERVER_CODES = tuple(sorted(NAME_SERVER_CODES))
