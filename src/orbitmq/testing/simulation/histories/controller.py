"""ControllerHistory: requests of simulated brokers to their controller and the answers, for a checker.

A history is JSON lines, one call each, in nanoseconds of virtual time:
``{"client": "replica-1", "operation": "alter", "invoked": 1, "returned": 2, "wanted": {…}, "found": {…}}``.
``returned`` and ``found`` are null where the caller never learned the outcome: the call may have been applied.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.bodies.replication import ElectMasterResponseBody, SyncStateSet
from orbitmq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orbitmq.broker.autoswitch.controllers import CallObserver
    from orbitmq.protocol.command.command import Command

OPERATIONS: dict[int, str] = {
    RequestCode.CONTROLLER_GET_REPLICA_INFO: "read",
    RequestCode.CONTROLLER_ELECT_MASTER: "elect",
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "alter",
}
"""Requests that read or change who is the master, and which replicas are in sync."""

KNOWS_MASTER = {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}


@dataclasses.dataclass(slots=True)
class Call:
    """A request, and its answer if there was one."""

    client: str
    operation: str
    invoked: int
    wanted: dict[str, Any]
    returned: int | None = None
    found: dict[str, Any] | None = None


class ControllerHistory:
    """Calls of all brokers, in the order in which they were made."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.calls: list[Call] = []

    def observer(self, client: str) -> CallObserver:
        """Records the calls of a broker."""

        def invoked(request: Command) -> Callable[[Command], None] | None:
            operation = OPERATIONS.get(request.code)
            if operation is None:
                return None
            call = Call(client, operation, self._nanoseconds(), _wanted(request))
            self.calls.append(call)

            def returned(answer: Command) -> None:
                call.returned = self._nanoseconds()
                call.found = _found(request.code, answer)

            return returned

        return invoked

    def write(self, path: Path) -> None:
        lines = [json.dumps(dataclasses.asdict(call), separators=(",", ":")) for call in self.calls]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def _nanoseconds(self) -> int:
        return round(self._now() * 1e9)


def _wanted(request: Command) -> dict[str, Any]:
    if request.code != RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
        return {}
    in_sync = SyncStateSet.decode(request.body or b"")
    return {
        "master": int(request.ext_fields["masterBrokerId"]),
        "epoch": int(request.ext_fields["masterEpoch"]),
        "setEpoch": in_sync.sync_state_set_epoch,
        "set": sorted(in_sync.sync_state_set),
    }


def _found(code: int, answer: Command) -> dict[str, Any]:
    """Code of an answer, and the state of the group in it; master 0 is none."""
    found: dict[str, Any] = {"code": answer.code}
    if answer.code not in KNOWS_MASTER or not answer.body:
        return found
    fields = answer.ext_fields
    if code == RequestCode.CONTROLLER_ELECT_MASTER:
        members = ElectMasterResponseBody.decode(answer.body).sync_state_set
        set_epoch = int(fields["syncStateSetEpoch"])
    else:
        in_sync = SyncStateSet.decode(answer.body)
        members, set_epoch = in_sync.sync_state_set, in_sync.sync_state_set_epoch
    master, epoch = int(fields.get("masterBrokerId", 0)), int(fields.get("masterEpoch", 0))
    return found | {"master": master, "epoch": epoch, "setEpoch": set_epoch, "set": sorted(members)}
