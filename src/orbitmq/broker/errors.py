"""Error responses that several processors share, in RocketMQ's wording where clients print it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.names import GROUPS_OF_SERVICES
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store import AppendRefusedError

ADVICE = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Java's clients print it, and users search for it."""


_UNAVAILABLE = "Service not available now."


def append_remark(
    error: AppendRefusedError, max_message_size: int, *, unavailable: Callable[[str], str] = lambda _: _UNAVAILABLE
) -> str:
    """The remark for a message that the store refuses, as RocketMQ answers a send.

    ``unavailable`` makes the remark of a store that accepts no messages from its reason.
    """
    if error.status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}:
        return (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{max_message_size}B, msg properties length limit 32KB."
        )
    if error.status is PutStatus.SERVICE_NOT_AVAILABLE:
        return unavailable(str(error))
    return str(error)


def append_failed(error: AppendRefusedError, code: int = ResponseCode.SYSTEM_ERROR) -> RequestRefusedError:
    """The refusal of a request whose own record the store does not accept."""
    return RequestRefusedError(f"{error.status.name}: {error}", code)


def no_topic(topic: str) -> RequestRefusedError:
    """The refusal of a send to an unknown topic."""
    return RequestRefusedError(
        f"topic[{topic}] not exist, apply first please!{ADVICE}", ResponseCode.TOPIC_NOT_EXIST
    )


def no_topic_to_pull(topic: str) -> RequestRefusedError:
    """The refusal of a pull, with the blank that RocketMQ has there."""
    return RequestRefusedError(
        f"topic[{topic}] not exist, apply first please! {ADVICE}", ResponseCode.TOPIC_NOT_EXIST
    )


def check_not_of_service(group: str) -> None:
    """Raise RequestRefusedError for a group that holds the offsets of a background service of the broker.

    A client that changed them would make redelivery or transaction checks skip messages.
    """
    if group in GROUPS_OF_SERVICES:
        raise RequestRefusedError(
            f"the offsets of group {group} belong to the broker: use another group", ResponseCode.NO_PERMISSION
        )


def no_group(group: str) -> RequestRefusedError:
    """The refusal of a send or send-back for an unknown group."""
    return RequestRefusedError(
        f"subscription group not exist, {group} {ADVICE}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    )
