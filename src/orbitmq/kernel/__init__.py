"""The compiled kernel, where it was built: what is done for every message, without a step of Python for each.

``SendRuns`` takes sends from the bytes of a connection into the log in one pass. It is the twin of the general path
(``broker.send``, ``store.appending``, ``store.dispatch``): for the messages that come in numbers it makes the same
records, queue units, index entries and answers, to the byte, and it leaves every other message to that path.
``AckRuns`` does the same for acknowledgements of popped messages, and has its twin in ``broker.pop_ack``;
``Deliveries`` for messages that waited for a time, and has its twin in ``broker.timer_messages``; ``LogRuns`` for
records that are in the log and in no queue yet, and has its twins in ``store.scan`` and ``store.dispatch``.
``PullRuns`` answers pulls that find messages, and has its twin in ``broker.pull`` and ``store.reading``.
``put_entries`` puts keys into an index file and ``hash_keys`` makes hashes of them; their twins are in
``store.index_entries``; those of ``is_sound`` and ``cut_entries``, for what a crash may have left, in
``store.index_arrays``. ``gather`` collects records for one answer, ``follow`` the units of a slot of the timer,
``advise`` says how a map is used, ``take_large`` has large pages of it in memory; their twins are in ``gathering``,
``following`` and ``advising``. ``QueueEnd`` and ``Count`` are the numbers of a queue that all of this reads and
changes; their twins are in ``ends``.

Without the kernel everything works the same, only slower: what has its twin elsewhere is then None, and ``advise``,
``take_large``, ``gather``, ``follow``, ``QueueEnd`` and ``Count`` are the plain ones. So it is where the
environment says ``ORBITMQ_KERNEL=off``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.kernel import advising, ends, following, gathering

if TYPE_CHECKING:
    from types import ModuleType

    from orbitmq.kernel import _native
    from orbitmq.kernel.ends import Count, QueueEnd

SWITCH = "ORBITMQ_KERNEL"


def load() -> ModuleType | None:
    """The compiled module; None if there is none or it is not wanted."""
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "false"}:
        return None
    try:
        from orbitmq.kernel import _native as native  # noqa: PLC0415 - it may not be there
    except ImportError:
        return None
    return native


_compiled = load()
SendRuns: type[_native.SendRuns] | None = None if _compiled is None else _compiled.SendRuns
AckRuns: type[_native.AckRuns] | None = None if _compiled is None else _compiled.AckRuns
Deliveries: type[_native.Deliveries] | None = None if _compiled is None else _compiled.Deliveries
LogRuns: type[_native.LogRuns] | None = None if _compiled is None else _compiled.LogRuns
PullRuns: type[_native.PullRuns] | None = None if _compiled is None else _compiled.PullRuns
put_entries = None if _compiled is None else _compiled.put_entries
cut_entries = None if _compiled is None else _compiled.cut_entries
is_sound = None if _compiled is None else _compiled.is_sound
hash_keys = None if _compiled is None else _compiled.hash_keys
advise = advising.advise if _compiled is None else _compiled.advise
take_large = advising.take_large if _compiled is None else _compiled.take_large
gather = gathering.gather if _compiled is None else _compiled.gather
follow = following.follow if _compiled is None else _compiled.follow
if not TYPE_CHECKING:  # classes are made on these, and to whoever checks types they are always the same
    QueueEnd = ends.QueueEnd if _compiled is None else _compiled.QueueEnd
    Count = ends.Count if _compiled is None else _compiled.Count

__all__ = [
    "AckRuns",
    "Count",
    "Deliveries",
    "LogRuns",
    "PullRuns",
    "QueueEnd",
    "SendRuns",
    "advise",
    "cut_entries",
    "follow",
    "gather",
    "hash_keys",
    "is_sound",
    "put_entries",
    "take_large",
]
