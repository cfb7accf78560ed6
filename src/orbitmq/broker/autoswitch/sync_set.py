"""SyncSetKeeper: reports to the controller which slaves of this master are in sync, and takes over the answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.autoswitch.controllers import ControllerError
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.autoswitch.controllers import ControllerClient
    from orbitmq.broker.autoswitch.master import AutoSwitchMaster
    from orbitmq.broker.autoswitch.term import Term
    from orbitmq.broker.config.broker_config import BrokerConfig

log = logging.getLogger("orbitmq.broker")

RETRY_SECONDS = 1.0


class SyncSetKeeper:
    """One task for as long as a broker runs; it has work while this broker is master."""

    def __init__(
        self,
        config: BrokerConfig,
        controllers: ControllerClient,
        current: Callable[[], tuple[Term, AutoSwitchMaster] | None],
        on_refusal: Callable[[], None],
    ) -> None:
        """``current`` returns the term and the HA listener of a master. ``on_refusal``: the term may be over."""
        self._config = config
        self._controllers = controllers
        self._current = current
        self._on_refusal = on_refusal
        self._changed = asyncio.Event()

    def check_soon(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._config.check_sync_state_set_period / 1000)
            self._changed.clear()
            current = self._current()
            if current is None:
                continue
            try:
                await self._check(*current)
            except ControllerError as error:
                log.warning("ha: the sync state set was not changed, will retry: %s", error)
                if error.is_final:
                    self._on_refusal()
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()
            except Exception:
                # Any error: without this task a lost slave would block all sends.
                log.exception("ha: check of the sync state set failed, will retry")
                await asyncio.sleep(RETRY_SECONDS)

    async def _check(self, term: Term, master: AutoSwitchMaster) -> None:
        sync = master.sync
        wanted = master.wanted_set()
        if wanted == sync.members:
            # A request without an answer still counts: ask for what it wanted, to have an answer.
            wanted = sync.effective
        if wanted == sync.members:
            return
        if master.is_in_doubt and not wanted >= sync.effective:
            # The slaves may follow and only their acknowledgements be lost: without them no other could be elected.
            raise ControllerError("no controller has answered lately, the set is not made smaller")
        log.info("ha: sync state set %s, asking the controller for %s", _text(sync.members), _text(wanted))
        sync.request(wanted)
        try:
            answer = await self._controllers.alter(term, wanted, sync.epoch)
        except ControllerError as error:
            if not error.is_final:
                sync.doubt(master.now())
            elif error.code != ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH:
                sync.refuse(master.now())
                master.set_changed()
            # Otherwise an earlier request was applied: the next answer has its epoch.
            raise
        if sync.confirm(answer.sync_state_set or wanted, answer.sync_state_set_epoch or sync.epoch + 1):
            log.info("ha: sync state set is %s, epoch %d", _text(sync.members), sync.epoch)
        master.set_changed()


def _text(members: frozenset[int]) -> str:
    return "{" + ", ".join(map(str, sorted(members))) + "}"
