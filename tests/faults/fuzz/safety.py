"""What no frame may do, because a server that obeyed it would be right to: each rule with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    import random

CANARY = "canary"
PROBE = "probe"
"""Names with these prefixes belong to the canary client and to the probes."""

BROKER_NAME = "broker-w"
"""Of the server under test: the captured frames name this broker."""
OTHER_BROKER = "broker-x"

ROUTE_CODES = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.QUERY_DATA_VERSION,
    }
)
"""These change the route to a broker when they name it, so they name another one."""

CONFIG_CODES = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})
"""A permission of 0 stops every send, and rightly. These codes carry only what ``settings`` returns."""

EXCLUDED_CODES: dict[int, str] = {}
"""Request codes that are not sent at all. There is none: every code is sent, with the limits above."""

_BAD_SETTINGS = (
    *(b"", b"=", b"=\n=\n", b"no value", b"unknownKey=1\n", b"\0=\0\n", b"\xff\xfe=\xff\n", b"a" * 70_000),
    *(b"listenPort=0\n", b"brokerConfigPath=/tmp/x\n", b"configBlackList=\n", b"rocketmqHome=/tmp\n"),
    *(b"brokerPermission=99\n", b"brokerPermission=x\n", b"maxErrorRateOfBloomFilter=0\n", b"reviveInterval=-1\n"),
    *(b"defaultMessageRequestMode=PUSH\n", b"namesrvAddr=no port\n", b"brokerName=\n", b"traceOn=perhaps\n"),
)
_HARMLESS_KEYS = ("traceOn", "maxErrorRateOfBloomFilter", "estimateAccumulation", "expectConsumerNumUseFilter")
_HARMLESS_VALUES = ("true", "false", "1", "20", "99", "100", "0", "-1", "", " ", "2147483648", "x" * 500, "a\\nb")


def settings(random: random.Random) -> bytes:
    """A change of settings that is refused, or accepted without harm."""
    if random.random() < 0.5:
        return random.choice(_BAD_SETTINGS)
    lines = [
        random.choice(_HARMLESS_KEYS)
        + random.choice(("=", " = ", ":", "=="))
        + random.choice(_HARMLESS_VALUES)
        + "\n"
        for _ in range(random.randrange(1, 4))
    ]
    return "".join(lines).encode()


def without_protected_names(text: str) -> str:
    """The same, with no name that belongs to the canary or to a probe."""
    if CANARY in text or PROBE in text:
        return text.replace(CANARY, "fuzz").replace(PROBE, "fuzz")
    return text
