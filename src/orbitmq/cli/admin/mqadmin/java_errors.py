"""Errors as Apache's tool prints them, so that scripts which look for a code or a text still find it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, NotFoundError, PartialFailureError, RefusedError, UnreachableError
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.specs import Spec

URL = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"

BROKER_EXCEPTIONS = frozenset(
    {
        *("consumerConnection", "producerConnection", "consumerStatus", "brokerStatus", "getBrokerConfig"),
        *("brokerConsumeStats", "producer", "queryCq", "haStatus", "consumerProgress", "topicStatus"),
    }
)
"""Commands whose refusals by a broker are an ``MQBrokerException``, which names the broker."""


class MQClientError(AdminError):
    """An error that Apache's client makes itself: a code and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def report(spec: Spec, error: AdminError) -> None:
    """Print an error to standard error."""
    print(
        f"org.apache.rocketmq.tools.command.SubCommandException: {spec.java_class} command failed", file=sys.stderr
    )
    print(f"Caused by: {exception_text(error, is_broker=spec.name in BROKER_EXCEPTIONS)}", file=sys.stderr)


def exception_text(error: AdminError, *, is_broker: bool = False) -> str:
    """The exception that Apache's client raises in such a case."""
    if isinstance(error, NotFoundError) and isinstance(error.__cause__, RefusedError):
        error = error.__cause__
    if isinstance(error, PartialFailureError):
        error = next((one for one in error.failed.values() if isinstance(one, AdminError)), error)
    package = "org.apache.rocketmq.client.exception"
    if isinstance(error, MQClientError):
        text = f"{package}.MQClientException: CODE: {error.code}  DESC: {error.text}"
    elif isinstance(error, RefusedError):
        remark = error.remark or "null"
        if is_broker and error.code != ResponseCode.TOPIC_NOT_EXIST:
            text = f"{package}.MQBrokerException: CODE: {error.code}  DESC: {remark} BROKER: {error.address}"
        else:
            text = f"{package}.MQClientException: CODE: {error.code}  DESC: {remark}"
    elif isinstance(error, UnreachableError):
        kind = "RemotingTimeoutException" if "no response" in error.reason else "RemotingConnectException"
        return f"org.apache.rocketmq.remoting.exception.{kind}: {error}"
    else:
        text = f"{package}.MQClientException: {error}"
    return text if URL in text else f"{text}\nFor more information, please visit the url, {URL}"
