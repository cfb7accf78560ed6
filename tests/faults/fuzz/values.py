"""Boundary values for header fields, message properties and filter expressions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.message import property_names

if TYPE_CHECKING:
    import random

TOPICS = tuple(f"fuzz-topic-{number}" for number in range(16))
GROUPS = tuple(f"fuzz-group-{number}" for number in range(16))
CLIENTS = tuple(f"10.0.0.{number}@fuzz" for number in range(8))
SPARE_NAMES = 2000
"""How many further names there are: enough for tables to grow, too few to fill them."""

NUMBERS = (
    *("", "0", "-0", "+1", "-1", "1", "2", "3", "7", "8", "16", "32", "33", "127", "128", "255", "256", "1000"),
    *("32766", "32767", "32768", "65535", "65536", "16777215", "16777216", "2147483646", "2147483647"),
    *("2147483648", "-2147483648", "-2147483649", "4294967295", "4294967296", "9223372036854775806"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("18446744073709551616", "1" * 40, "-" + "9" * 40, "1" * 5000, "1e9", "0x10", "NaN", "Infinity", "1.5", " 1"),
    *("1 ", "1_000", "٣", "true", "null", "--1", "1\n", "1\0"),
)

SYSTEM_TOPICS = (
    *("TBW102", "SELF_TEST_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"),
    *("RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster"),
    *("RMQ_SYS_TRACE_TOPIC", "OFFSET_MOVED_EVENT", "DefaultCluster", "broker-w", "DefaultCluster_REPLY_TOPIC"),
)
SYSTEM_GROUPS = ("CID_RMQ_SYS_TRANS", "CID_SYS_RMQ_TRANS", "TOOLS_CONSUMER", "CID_ONSAPI_PULL", "DEFAULT_CONSUMER")

TEXTS = (
    *("", " ", "\0", "a\0b", "line\nend", "a\r\nERROR forged: line", "\t", "\x01", "\x02", "a\x01b\x02", "\x7f"),
    *("\ud800", "\udfff", "a\ud83d", "\U0001f600", "\ufeff", "\ufffd", "é" * 100, "x" * 127, "x" * 128, "x" * 255),
    *("x" * 256, "x" * 1024, "../../../tmp/x", "/etc/passwd", "%s%n%d", "%RETRY%", "%DLQ%", "%RETRY%fuzz-group-1"),
    *("%DLQ%fuzz-group-1", "%LMQ%x", "*", "||", "a||b", "a || b", "{}", "[]", "null", '"', "\\", "'", "a@b", "a%b"),
    *("fuzz-group-1@fuzz-topic-1", "%RETRY%fuzz-group-1_fuzz-topic-1", "%RETRY%fuzz-group-1+fuzz-topic-1"),
)
LONG_TEXTS = (
    "x" * 32767,
    "x" * 32768,
    "y" * 65535,
    "z" * 65536,
    "||".join(map(str, range(5000))),
    "\x01\x02" * 9000,
)

PROPERTIES = (
    *("INIT_TIME", "__MESSAGE_ID", "a", "b", "c"),
    *(
        value
        for name, value in vars(property_names).items()
        if name.isupper() and isinstance(value, str) and value.isprintable() and len(value) > 2
    ),
)

NUMBER_PROPERTIES = frozenset(
    {
        *("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
        *("TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DELAY_LEVEL", "REAL_QID", "RECONSUME_TIME", "1ST_POP_TIME"),
        *("MAX_RECONSUME_TIMES", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "POP_CK_OFFSET"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "INNER_NUM", "INNER_BASE", "_SYS_MSG_PRIORITY_", "BORN_TIMESTAMP", "TTL"),
        *("__STARTDELIVERTIME", "INIT_TIME", "a", "b"),
    }
)
MAX_PROPERTIES = 32767
"""Bytes: the length of the properties is a signed short in a record."""

_OPERANDS = (
    "a",
    "b",
    "c",
    "TAGS",
    "x.y",
    "5",
    "-5",
    "9223372036854775807",
    "1e400",
    "0.5",
    "'s'",
    "''",
    "NULL",
    "TRUE",
)
_OPERATORS = (
    "=",
    "<>",
    ">",
    "<",
    ">=",
    "<=",
    " AND ",
    " OR ",
    " + ",
    " IS ",
    " LIKE ",
    " CONTAINS ",
    " STARTSWITH ",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Values:
    """Values drawn from one random source."""

    random: random.Random

    def number(self) -> str:
        return self.random.choice(NUMBERS)

    def small(self) -> str:
        """A number that is accepted nearly everywhere."""
        return str(self.random.choice((0, 0, 0, 1, 1, 2, 3, 4, 8, 16, 32, 100, 1000)))

    def text(self) -> str:
        if self.random.random() < 0.01:
            return self.random.choice(LONG_TEXTS)
        return self.random.choice(TEXTS)

    def topic(self) -> str:
        return self._name(TOPICS, SYSTEM_TOPICS, "fuzz-topic-spare-")

    def group(self) -> str:
        return self._name(GROUPS, SYSTEM_GROUPS, "fuzz-group-spare-")

    def _name(self, usual: tuple[str, ...], system: tuple[str, ...], spare: str) -> str:
        draw = self.random.random()
        if draw < 0.9:
            return self.random.choice(usual)
        if draw < 0.96:
            return self.random.choice(system)
        return f"{spare}{self.random.randrange(SPARE_NAMES)}" if draw < 0.97 else self.text()

    def value(self) -> str:
        """Any of them."""
        return self.random.choice((self.number, self.number, self.text, self.topic, self.group))()

    def receipt(self) -> str:
        """What a POP consumer shows to acknowledge a message, usually well-formed."""
        usual = [
            self.small(),
            "1700000000000",
            "1000",
            str(self.random.randrange(8)),
            "0",
            "broker-w",
            "0",
            self.small(),
        ]
        for _ in range(self.random.randrange(3)):
            usual[self.random.randrange(len(usual))] = self.value()
        if self.random.random() < 0.1:
            usual = usual[: self.random.randrange(len(usual))]
        return " ".join(usual)

    def expression(self) -> str:
        """A filter in SQL92 or of tags, valid more often than not."""
        draw = self.random.random()
        if draw < 0.1:
            return "*"
        if draw < 0.2:
            return " || ".join(self.random.choices(("a", "b", "TagA", "*", "", " "), k=self.random.randrange(1, 9)))
        if draw < 0.25:
            depth = self.random.choice((3, 50, 400, 3000))
            return "(" * depth + "a > 5" + ")" * (depth - self.random.randrange(2))
        if draw < 0.3:
            return self.text()
        parts = [self.random.choice(_OPERANDS)]
        for _ in range(self.random.choice((1, 1, 2, 3, 5, 60))):
            parts += [self.random.choice(_OPERATORS), self.random.choice(_OPERANDS)]
        return "".join(parts)

    def properties(self) -> str:
        """The properties of a message, with names that the broker gives a meaning to."""
        items = ["UNIQ_KEY\x01" + self.random.choice(("K1", "K2", "0" * 32, "", "a b"))]
        for _ in range(self.random.choice((0, 1, 1, 2, 3, 6))):
            name = self.random.choice(PROPERTIES)
            items.append(f"{name}\x01{self.property_value(name)}")
        text = "\x02".join(items)
        draw = self.random.random()
        if draw < 0.02:
            text += "\x02pad\x01" + "p" * (MAX_PROPERTIES - len(text) - self.random.randrange(-3, 400))
        elif draw < 0.06:
            return text.replace("\x02", self.random.choice(("\x01", "\x02\x02", "\x02\x01", "", "\0")))
        return text + self.random.choice(("\x02", "\x02", "", "\x01", "\x02\x02"))

    def property_value(self, name: str) -> str:
        draw = self.random.random()
        if draw < 0.1:
            return self.value()
        if name in NUMBER_PROPERTIES:
            return self.small() if draw < 0.7 else self.number()
        if "TOPIC" in name:
            return self.topic()
        if "GROUP" in name:
            return self.group()
        if name == "POP_CK":
            return self.receipt()
        return self.random.choice(("true", "false", "a", "K1", self.small()))
