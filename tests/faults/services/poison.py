"""Poison records: malformed records in the system topics of a broker, for its background services."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import orjson

from orbitmq.protocol.message.properties import encode
from orbitmq.store import StoredMessage
from support.broker.requests import CONSUMERS, TOPIC

if TYPE_CHECKING:
    from orbitmq.store import MessageStore

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
TIMER = "rmq_sys_wheel_timer"
DELAYS = "SCHEDULE_TOPIC_XXXX"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
OWN_TOPICS = (REVIVE, TIMER, DELAYS, HALF, OPS)

NUMBERS = (-(1 << 63), -(1 << 31), -1, 0, 1, 127, 128, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 64, 10**30)
TEXTS = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "2147483648",
    "9" * 18,
    "9" * 19,
    "9" * 5000,
    "1e9",
    "ö",
    "../up",
    "a b",
    "%RETRY%",
)
TOPICS = (TOPIC, "Unknown", "../up", "a/b", "", "x" * 300, "ö" * 60, *OWN_TOPICS)
NAMES = (
    "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_ROLL_TIMES", "DELAY",
    "TIMER_DEL_UNIQKEY", "TIMER_ENQUEUE_MS", "TAGS", "UNIQ_KEY", "KEYS", "PGROUP", "TRAN_MSG", "1ST_POP_TIME",
    "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "__CRC32#", "POP_CK",
)  # fmt: skip
KEYS = ("bm", "bn", "c", "d", "it", "n", "pt", "q", "reviveTime", "ro", "rp", "so", "sp", "t", "ao", "aol")
LARGEST = 32_767
INT32 = range(-(1 << 31), 1 << 31)


def properties(rng: random.Random, now: int) -> bytes:
    """Properties that no broker would write."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.choice((0, 1, 40, 300)))
    said = {name: rng.choice(TEXTS) for name in rng.sample(NAMES, rng.randrange(len(NAMES)))}
    if kind > 1:
        said |= {"REAL_TOPIC": rng.choice(TOPICS), "REAL_QID": rng.choice(("0", "1", "2000000000", "-1", "x"))}
        said |= {"TIMER_OUT_MS": str(rng.choice((now - 5000, now + 1000, now + 10**12))), "DELAY": "1"}
        said |= {"TAGS": rng.choice(("ck", "ack", "bAck", "d", "other"))}
    if kind == 4:
        said |= {
            "TIMER_DELIVER_MS": str(rng.choice((now, now + 10**13, 10**18))),
            "UNIQ_KEY": "K",
            "PGROUP": "PG_tx",
        }
        found = encode(said)
        return found + b"long\x01%b\x02" % (b"x" * max(LARGEST - len(found) - 6, 0))
    return encode(said)[:LARGEST]


def body(rng: random.Random, now: int) -> bytes:
    """A body roughly like that of a checkpoint, an ack or an op message."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice((1, 30, 500)))
    if kind == 1:
        return b",".join([str(rng.choice(NUMBERS)).encode() for _ in range(rng.randrange(1, 50))])
    said: dict[str, object] = {}
    if kind == 3:
        said = {
            "t": TOPIC,
            "c": CONSUMERS,
            "q": 0,
            "so": 0,
            "n": 1,
            "pt": now - 9000,
            "it": 3000,
            "d": [0],
            "bm": 0,
        }
    for key in rng.sample(KEYS, rng.randrange(1, 4 if kind == 3 else len(KEYS))):
        number = max(min(rng.choice(NUMBERS), (1 << 64) - 1), -(1 << 63))
        said[key] = rng.choice((number, number, [number, 1], rng.choice(TEXTS), None, {"a": 1}))
    return orjson.dumps(said)


def feed(store: MessageStore, seed: int, count: int) -> int:
    """Append so many records to each system topic, bypassing all checks; returns how many were stored."""
    rng = random.Random(seed)
    now = store.clock.now_ms()
    fed = 0
    for topic in OWN_TOPICS:
        for _ in range(count):
            queue_id = {REVIVE: rng.randrange(8), DELAYS: rng.randrange(18)}.get(topic, 0)
            times = rng.choice([number for number in NUMBERS if number in INT32])
            born = rng.choice((0, now, now - 10**10, -(1 << 63), (1 << 63) - 1))
            appended = store.append(
                StoredMessage(
                    topic,
                    queue_id,
                    body(rng, now),
                    properties(rng, now),
                    reconsume_times=times,
                    born_timestamp=born,
                )
            )
            fed += 1
            if rng.random() < 0.1:
                _damage(store, appended.offset, appended.size, rng)
    return fed


def _damage(store: MessageStore, offset: int, size: int, rng: random.Random) -> None:
    """Flip a byte of a record behind its size, so that its CRC or another field is wrong."""
    buffer = store.log.files.buffer_at(offset)
    assert buffer is not None
    at = offset % store.log.file_size + rng.randrange(4, size)
    buffer[at] = buffer[at] ^ 0x55
