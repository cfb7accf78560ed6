"""Quota of users (``maxRequestsPerSecondOfUser``): which requests count, and which are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.auth.errors import QuotaError
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from orbitmq.auth.policies import User
    from orbitmq.auth.quotas.quota import Quota

NEVER_REFUSED = frozenset(
    int(code)
    for code in (
        *(RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.UPDATE_CONSUMER_OFFSET),
        *(RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.END_TRANSACTION),
        *(RequestCode.UNLOCK_BATCH_MQ, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    )
)
"""Requests that finish something, or keep a client alive: they count, and are served beyond the quota too. Without
them clients would do their work twice, and send more."""


def charge(quota: Quota, user: User, code: int | None, per_second: int) -> None:
    """Count a request of a user. Raises QuotaError. ``code`` is None for a call of gRPC."""
    # Super users run the cluster, and servers are some: a flood must not keep them out.
    if user.is_super or quota.admits(user.name) or code in NEVER_REFUSED:
        return
    count_refusal(Limit.REQUESTS_OF_USER)
    raise QuotaError(
        f"[FLOW CONTROL] User:{user.name} sent more than {per_second} requests in a second "
        "(maxRequestsPerSecondOfUser): broker busy, try again later"
    )
