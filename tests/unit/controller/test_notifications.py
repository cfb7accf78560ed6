"""Notifications of elections: to living members, at their addresses, and the newest epoch only."""

from __future__ import annotations

import asyncio
import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from orbitmq.controller.machine.group import Replica
from orbitmq.controller.notifications import Notifications
from orbitmq.protocol.bodies import SyncStateSet
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting import Listener, RemotingServer
from orbitmq.remoting.processor import handler_of
from support.controller_harness import alive, group_of
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.controller.machine.group import BrokerGroup
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection


class Brokers:
    """A port on which notifications are noted."""

    def __init__(self) -> None:
        self.received: list[Command] = []
        handlers = {int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED): handler_of(self.note)}
        self.server = RemotingServer([Listener(handlers)])

    def note(self, request: Command, _: Connection) -> Command:
        self.received.append(request)
        return request.response(0)

    def group(self, epoch: int) -> BrokerGroup:
        """A group of two whose replicas are both here."""
        group = group_of(1, 2, master=2)
        replica = Replica(f"127.0.0.1:{self.server.ports[0]}", "")
        return dataclasses.replace(group, master_epoch=epoch, replicas=MappingProxyType({1: replica, 2: replica}))


async def test_living_members_are_notified_once_of_the_newest_epoch() -> None:
    brokers = Brokers()
    await brokers.server.start()
    notifications = Notifications()
    try:
        notifications.role_changed(brokers.group(5), alive(2))
        # Before the first one has been sent, and one that comes too late.
        notifications.role_changed(brokers.group(7), alive(2))
        notifications.role_changed(brokers.group(6), alive(2))
        await eventually(lambda: brokers.received)
        (request,) = brokers.received
        assert request.is_oneway
        address = f"127.0.0.1:{brokers.server.ports[0]}"
        assert request.ext_fields == {
            "masterAddress": address, "masterEpoch": "7", "syncStateSetEpoch": "5", "masterBrokerId": "2",
        }  # fmt: skip
        assert SyncStateSet.decode(request.body or b"") == SyncStateSet([2], 5)
        notifications.role_changed(brokers.group(8), alive())
        await asyncio.sleep(0)
        assert len(brokers.received) == 1
    finally:
        await notifications.close()
        await brokers.server.stop(0)
