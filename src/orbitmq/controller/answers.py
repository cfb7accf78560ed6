"""Responses of the controller: outcomes of operations as header fields and bodies."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.controller.storage.interface import CommitError, NotLeaderError
from orbitmq.protocol.bodies import BrokerMemberGroup, ElectMasterResponseBody, SyncStateSet
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.fields import encode_fields
from orbitmq.protocol.command.response_fields import response_fields
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orbitmq.controller.machine.group import BrokerGroup
    from orbitmq.controller.service import Outcome
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.fields import FieldValue


@contextlib.contextmanager
def leader_error() -> Iterator[None]:
    """Errors of an operation as response codes."""
    try:
        yield
    except NotLeaderError as error:
        raise RequestRefusedError(str(error), ResponseCode.CONTROLLER_NOT_LEADER) from None
    except CommitError as error:
        raise RequestRefusedError(f"the controller cannot store the change: {error}") from error


def answer_of(
    request: Command, outcome: Outcome, values: Mapping[str, FieldValue], body: bytes | None = None
) -> Command:
    """The response to an operation, with the remark of its decision."""
    return request.response(
        outcome.decision.code,
        ext_fields=encode_fields(values, response_fields(request.code)),
        body=body,
        remark=outcome.decision.remark,
    )


def master_fields(group: BrokerGroup) -> dict[str, FieldValue]:
    """Header fields about the master; id and address are absent without one."""
    return {
        "masterBrokerId": group.master,
        "masterAddress": group.master_address,
        "masterEpoch": group.master_epoch,
    }


def elected_fields(group: BrokerGroup) -> tuple[dict[str, FieldValue], bytes]:
    """Header fields and body of an election."""
    addresses = {broker_id: one.address for broker_id, one in group.replicas.items()}
    members = BrokerMemberGroup(group.cluster, group.name, addresses)
    # Apache's mqadmin skips the members, and cannot skip numeric keys without quotes.
    body = ElectMasterResponseBody(members, list(group.in_sync)).encode(browser_compatible=True)
    return {**master_fields(group), "syncStateSetEpoch": group.set_epoch}, body


def set_body(group: BrokerGroup) -> bytes:
    """The in-sync set and its epoch."""
    return SyncStateSet(list(group.in_sync), group.set_epoch).encode()
