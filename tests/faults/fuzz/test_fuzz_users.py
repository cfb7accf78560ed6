"""Fuzzed frames at a broker with access control: before authentication nothing changes, after it nothing breaks."""

from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING, Any

from faults.fuzz.frames import Fate, batch
from faults.fuzz.templates import BROKER
from orbitmq.auth.credentials import Credentials
from orbitmq.auth.policies import Acl, Policy, PolicyEntry, PolicyType, User
from orbitmq.auth.resources import Action, resource_of
from orbitmq.auth.signature import Signer
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingClient
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.requests import send_request
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    import pytest

    from faults.fuzz.frames import Flight
    from orbitmq.broker import Broker

SEED = int(os.environ.get("ORBITMQ_FUZZ_SEED", "20262"))
FRAMES = int(os.environ.get("ORBITMQ_FUZZ_FRAMES", "4000"))
USERS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "brokerFastFailureEnable": "false",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
}
END = 7_654_322
"""A request code without a handler: its answer says that everything before it was read."""


def flights() -> list[Flight]:
    """What is sent to the broker at once, ``FRAMES`` frames together."""
    found: list[Flight] = []
    number = 0
    while sum(len(flight.frames) for flight in found) < FRAMES:
        made = batch(SEED, number)
        number += 1
        if made.target == BROKER:
            found += made.flights
    return found


def signed(frame: bytes, signer: Signer) -> bytes:
    """The frame with a valid signature, if it can be read at all."""
    try:
        command = Command.decode(FrameParser().feed(frame)[0])
        signer.sign(command)
        return command.encode()
    except (ProtocolError, IndexError, UnicodeError, ValueError):
        return frame


async def throw(broker: Broker, signer: Signer | None = None) -> None:
    """Send all flights, each over a connection of its own, and wait until they were read."""
    for flight in flights():
        async with BrokerPeer.of(broker) as peer:
            for frame in flight.frames:
                peer.send(frame if signer is None else signed(frame, signer))
            if flight.fate is Fate.OPEN:
                peer.send(Command(END, opaque=END).encode())
            else:
                # It may be the beginning of a frame: the broker waits for the rest, or for the end.
                peer.writer.write_eof()
            await eventually(functools.partial(_is_read, peer))


def _is_read(peer: BrokerPeer) -> bool:
    return END in peer.answers or peer._listening.done()


def state(broker: Broker) -> dict[str, Any]:
    """Everything that a request can change."""
    table = broker.access.table
    assert table is not None
    return {
        "topics": json.dumps(sorted(broker.topics.configs)),
        "groups": json.dumps(sorted(broker.groups.configs)),
        "offsets": len(broker.offsets),
        "users": dict(table.users),
        "acls": dict(table.acls),
        "settings": broker.settings.as_properties(),
        "log": broker.store.log.end,
    }


def assert_sound(caplog: pytest.LogCaptureFixture) -> None:
    assert "Traceback" not in caplog.text
    assert not [
        record
        for record in caplog.records
        if " failed: " in record.getMessage() and "request " in record.getMessage()
    ]


async def test_frames_without_a_signature_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(MemoryDisk(), **USERS) as broker:
        before = state(broker)
        await throw(broker)
        assert state(broker) == before
        assert_sound(caplog)


async def test_frames_of_a_normal_user_break_nothing_and_give_no_rights(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(MemoryDisk(), **USERS) as broker:
        table = broker.access.table
        assert table is not None
        everything = [resource_of(text) for text in ("Topic:*", "Group:*")]
        entries = tuple(PolicyEntry(one, (Action.ALL,)) for one in everything if one is not None)
        table.users = {**table.users, "alice": User("alice", "alices-secret")}
        table.acls = {"alice": Acl("User:alice", (Policy(PolicyType.CUSTOM, entries),))}
        before = state(broker)
        signer = Signer(Credentials("alice", "alices-secret"))
        await throw(broker, signer)
        after = state(broker)
        for part in ("users", "acls", "settings"):
            assert after[part] == before[part], part
        assert after["log"] > before["log"], "sends were among them"
        assert_sound(caplog)
        client = RemotingClient(signer=signer)
        answer = await client.call(f"{HOST}:{broker.port}", send_request(topic="probe"), 10)
        assert answer.code == ResponseCode.SUCCESS
        root = RemotingClient(signer=broker.access.signer)
        shown = await root.call(f"{HOST}:{broker.port}", Command(RequestCode.GET_BROKER_CONFIG), 10)
        assert shown.code == ResponseCode.SUCCESS
        await client.close()
        await root.close()
