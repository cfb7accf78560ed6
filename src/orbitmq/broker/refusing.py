"""The sentences of refusals that several processors share, in RocketMQ's own words where clients show them."""

from __future__ import annotations

from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting.processing import RequestRefusedError

ADVICE = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Java's clients print it; people search for it."""


def no_topic(topic: str) -> RequestRefusedError:
    """To a producer."""
    return RequestRefusedError(
        f"topic[{topic}] not exist, apply first please!{ADVICE}", ResponseCode.TOPIC_NOT_EXIST
    )


def no_topic_to_pull(topic: str) -> RequestRefusedError:
    """To a consumer, with the blank that RocketMQ has there."""
    return RequestRefusedError(
        f"topic[{topic}] not exist, apply first please! {ADVICE}", ResponseCode.TOPIC_NOT_EXIST
    )


def no_group(group: str) -> RequestRefusedError:
    """To a producer, or a consumer that sends back."""
    return RequestRefusedError(
        f"subscription group not exist, {group} {ADVICE}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    )
