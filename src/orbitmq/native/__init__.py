"""The native extension, and the one place that chooses between it and its Python twins.

``load()`` returns a ``Native``: every entry point, either compiled or in Python. Both have the same contract and
give the same results, to the byte; the twins in ``native.python`` are the specification. The batch types
(``send_batcher``, ``ack_batcher``, ``deferred_delivery``, ``pull_server``, ``offset_server``, ``log_replayer``) and
the functions for index files have no twin of the same shape: their fallback is the Python path of the broker and
the store, which handles one message at a time. Ask ``load().is_compiled`` before using them.

=====================  ====================================================================================
entry point            fallback
=====================  ====================================================================================
``send_batcher``       ``broker.send.processor``, ``store.append.appender``, ``store.dispatch.dispatcher``
``ack_batcher``        ``broker.pop.ack``
``deferred_delivery``  ``broker.timer.delivery``, ``broker.schedule.service``
``pull_server``        ``broker.pull.processor``, ``store.reader``
``offset_server``      ``broker.offsets.processor``
``log_replayer``       ``store.commitlog.scanner``, ``store.dispatch.dispatcher``
``put_entries``        ``store.index.entries``
``hash_keys``          ``store.index.entries``
``is_sound``           ``store.index.arrays``
``cut_entries``        ``store.index.arrays``
``verify_requests``    ``auth.guard``, ``auth.signature``
``guard_maps``         ``faulthandler``: a stack dump instead of one line that names the truncated file
all others             ``native.python``
=====================  ====================================================================================

The Python path is used where the extension was not built, and with ``ORBITMQ_NATIVE=off``.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import os
from typing import TYPE_CHECKING, Any, NoReturn, cast

from orbitmq.native.python import gather_records, madvise, queue_state, timer_chain

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from orbitmq.native import _native
    from orbitmq.native.python.queue_state import Counter, QueueState
    from orbitmq.native.results import Gathered, MissingGrant

__all__ = ["Counter", "Native", "QueueState", "compiled_module", "load", "python_path", "status"]

REBUILD = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary orbitmq orbitmq"
"""Builds it from source again. pip keeps the wheel that it has built before, also one without the extension."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """All entry points. Without ``is_compiled`` those marked "compiled only" raise RuntimeError."""

    is_compiled: bool

    queue_state: type[QueueState]
    counter: type[Counter]
    advise: Callable[..., None]
    populate_huge_pages: Callable[..., None]
    gather_records: Callable[..., Gathered | None]
    follow_timer_chain: Callable[..., tuple[bytes, int, int]]
    guard_maps: Callable[[], None]

    # Compiled only
    send_batcher: type[_native.SendBatcher]
    ack_batcher: type[_native.AckBatcher]
    pop_server: type[_native.PopServer]
    offset_server: type[_native.OffsetServer]
    deferred_delivery: type[_native.DeferredDelivery]
    pull_server: type[_native.PullServer]
    log_replayer: type[_native.LogReplayer]
    request_code: Callable[[bytes, int], int]
    signing_key: Callable[[bytes, bool], bytes]
    verify_requests: Callable[[bytes, bytes, dict[bytes, bytes], set[bytes]], tuple[int, MissingGrant | None]]
    put_entries: Callable[..., int]
    hash_keys: Callable[[list[bytes]], bytes]
    is_sound: Callable[..., bool]
    cut_entries: Callable[..., tuple[int, int, int]]


def compiled_module() -> ModuleType | None:
    """The extension module; None if it was not built or the environment switches it off."""
    if _is_switched_off():
        return None
    try:
        from orbitmq.native import _native as module  # noqa: PLC0415 - it may not be there
    except ImportError:
        return None
    return module


def _is_switched_off() -> bool:
    # ORBITMQ_KERNEL is the older name of the switch.
    names = ("ORBITMQ_NATIVE", "ORBITMQ_KERNEL")
    return bool({os.environ.get(name, "").lower() for name in names} & {"off", "0", "false"})


def status() -> str:
    """``yes``, or ``no`` and the reason with the way to change it, for people."""
    if _module is not None:
        return "yes"
    if _is_switched_off():
        return "no, switched off by ORBITMQ_NATIVE"
    folder = os.path.dirname(__file__)
    built = [name for name in os.listdir(folder) if name.startswith("_native.") and name.endswith((".so", ".pyd"))]
    if built:
        return f"no, {built[0]} does not load in this Python; install again with: {REBUILD}"
    return f"no, it was not built: install a C compiler (Debian: gcc libc6-dev python3-dev), then run: {REBUILD}"


def python_path() -> Native:
    """The Python twins, and stubs that raise RuntimeError for what is compiled only."""
    return Native(
        is_compiled=False,
        queue_state=queue_state.QueueState,
        counter=queue_state.Counter,
        advise=madvise.advise,
        populate_huge_pages=madvise.populate_huge_pages,
        gather_records=gather_records.gather_records,
        follow_timer_chain=timer_chain.follow_timer_chain,
        guard_maps=faulthandler.enable,
        send_batcher=_absent("SendBatcher"),
        ack_batcher=_absent("AckBatcher"),
        pop_server=_absent("PopServer"),
        offset_server=_absent("OffsetServer"),
        deferred_delivery=_absent("DeferredDelivery"),
        pull_server=_absent("PullServer"),
        log_replayer=_absent("LogReplayer"),
        request_code=_absent("request_code"),
        signing_key=_absent("signing_key"),
        verify_requests=_absent("verify_requests"),
        put_entries=_absent("put_entries"),
        hash_keys=_absent("hash_keys"),
        is_sound=_absent("is_sound"),
        cut_entries=_absent("cut_entries"),
    )


def load() -> Native:
    """The entry points of this process: compiled where possible."""
    return _selected


def _absent(name: str) -> Any:
    def absent(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(f"{name} needs the native extension: check native.load().is_compiled first")

    return absent


def _compiled(module: ModuleType) -> Native:
    made = cast("Any", module)
    return Native(
        is_compiled=True,
        queue_state=made.QueueState,
        counter=made.Counter,
        advise=made.advise,
        populate_huge_pages=made.populate_huge_pages,
        gather_records=made.gather_records,
        follow_timer_chain=made.follow_timer_chain,
        guard_maps=made.guard_maps,
        send_batcher=made.SendBatcher,
        ack_batcher=made.AckBatcher,
        pop_server=made.PopServer,
        offset_server=made.OffsetServer,
        deferred_delivery=made.DeferredDelivery,
        pull_server=made.PullServer,
        log_replayer=made.LogReplayer,
        request_code=made.request_code,
        signing_key=made.signing_key,
        verify_requests=made.verify_requests,
        put_entries=made.put_entries,
        hash_keys=made.hash_keys,
        is_sound=made.is_sound,
        cut_entries=made.cut_entries,
    )


_module = compiled_module()
_selected = python_path() if _module is None else _compiled(_module)

if not TYPE_CHECKING:  # base classes of the store and the broker; for a type checker always the Python twins
    QueueState = _selected.queue_state
    Counter = _selected.counter
