"""Detects the file sizes that a store directory was written with.

A store does not record its file sizes, and a broker knows them from its ``broker.conf`` only. Tools are pointed at
directories whose ``broker.conf`` is elsewhere or lost, so the sizes are derived from the files: their lengths, and
for the index, whose length leaves two unknowns, its contents.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import TYPE_CHECKING, Any

from orbitmq.platform.settings import ConfigError, java_key
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import LMQ_PREFIX
from orbitmq.store.config import StoreConfig, from_settings
from orbitmq.store.config_tables import TOPICS
from orbitmq.store.errors import StoreDamagedError, StoreError
from orbitmq.store.index.format import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, file_size
from orbitmq.store.index.index_file import IndexFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orbitmq.platform.disk import Disk

_PLACES = ("commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint", "abort", "lock")
"""Names in a store's root; a store has at least one of them."""

_DEFAULTS = StoreConfig()

_INDEX_RATIO = 4
"""Entries per slot with RocketMQ's defaults, often preserved when one number is changed."""


class NotAStoreError(StoreError):
    """The directory has nothing that belongs to a store."""


@dataclasses.dataclass(slots=True)
class Layout:
    """Layout of a store as detected from its files."""

    config: StoreConfig
    batch_topics: set[str]
    """Topics with ``queue.type=BatchCQ``."""
    index_is_known: bool = True
    """True if the numbers of slots and entries are certain; only then can index files be read or written."""
    assumed: list[str] = dataclasses.field(default_factory=list)
    """Settings that neither the files nor a conf determine, as ``key=value``."""


def detect(disk: Disk, root: str, conf: Mapping[str, str] | None = None) -> StoreConfig:
    """The settings a store was written with. ``conf`` has those of its ``broker.conf``, if there is one."""
    return survey(disk, root, conf).config


def survey(disk: Disk, root: str, conf: Mapping[str, str] | None = None) -> Layout:
    """``detect``, with its certainty."""
    _check_is_store(disk, root)
    settings = dict(conf or {})
    given, _ = from_settings(settings, store_path_root_dir=root)
    given.store_path_commit_log = _commit_log_path(disk, root, settings)
    layout = Layout(given, set())
    found: dict[str, Any] = {}
    log_sizes = [
        (path, size) for directory in given.commit_log_dirs for path, size in _numbered_files(disk, directory)
    ]
    _decide(layout, settings, found, "mapped_file_size_commit_log", _log_file_size(log_sizes))
    for name, folder in (
        ("mapped_file_size_consume_queue", "consumequeue"),
        ("mapper_file_size_batch_consume_queue", "batchconsumequeue"),
        ("mapped_file_size_consume_queue_ext", "consumequeue_ext"),
    ):
        _decide(layout, settings, found, name, _first_queue_file(disk, os.path.join(root, folder)))
    if "enableLmq" not in settings and "enableMultiDispatch" not in settings and _has_lmqs(disk, root):
        found["enable_lmq"] = found["enable_multi_dispatch"] = True
    _decide_index(disk, layout, settings, found)
    layout.config = dataclasses.replace(given, **found)
    layout.batch_topics = _batch_topics(disk, root)
    return layout


def detect_log(disk: Disk, path: str) -> StoreConfig:
    """The settings needed to read the commit log alone. ``path`` is the store, or the directory of its log."""
    files = list(_numbered_files(disk, path))
    if files:
        directory = path
    else:
        _check_is_store(disk, path)
        directory = os.path.join(path, "commitlog")
        files = list(_numbered_files(disk, directory))
    found = _log_file_size(files)
    size = _DEFAULTS.mapped_file_size_commit_log if found is None else found[1]
    root = os.path.dirname(directory)
    return StoreConfig(store_path_root_dir=root, store_path_commit_log=directory, mapped_file_size_commit_log=size)


def _check_is_store(disk: Disk, root: str) -> None:
    stat = disk.stat(root)
    if stat is None:
        raise NotAStoreError(f"there is no directory {root}")
    if not stat.is_dir:
        raise NotAStoreError(f"{root} is a file: give the directory that holds commitlog and consumequeue")
    names = set(disk.list(root))
    if names.intersection(_PLACES):
        return
    if any(len(name) == 20 and name.isdigit() for name in names):
        hint = f"; if these are log files, give the directory above: {os.path.dirname(os.path.abspath(root))}"
    elif set(disk.list(os.path.join(root, "store"))).intersection(_PLACES):
        hint = f"; did you mean {os.path.join(root, 'store')}?"
    else:
        hint = ""
    raise NotAStoreError(f"{root} is not a store: it has no commitlog, no consumequeue and no checkpoint{hint}")


def _commit_log_path(disk: Disk, root: str, settings: Mapping[str, str]) -> str:
    """Directory of the log. A path below the conf's own root is taken relative to the given root."""
    named = settings.get("storePathCommitLog", "")
    conf_root = os.path.normpath(settings["storePathRootDir"]) if settings.get("storePathRootDir") else None
    moved = []
    for part in named.split(","):
        path = os.path.normpath(part.strip()) if part.strip() else ""
        if path and conf_root is not None and path.startswith(conf_root + "/"):
            path = os.path.join(root, os.path.relpath(path, conf_root))
        if path:
            moved.append(path)
    if any(next(_numbered_files(disk, path), None) for path in moved):
        return ",".join(moved)
    # A store that was copied as a whole: its log is in the default directory.
    return "" if next(_numbered_files(disk, os.path.join(root, "commitlog")), None) else ",".join(moved)


# File sizes


def _numbered_files(disk: Disk, directory: str) -> Iterator[tuple[str, int]]:
    """Files named by their first byte's offset that have a size, lowest first."""
    for name in disk.list(directory):
        if len(name) == 20 and name.isdigit():
            path = os.path.join(directory, name)
            stat = disk.stat(path)
            if stat is not None and not stat.is_dir and stat.size > 0:
                yield path, stat.size


def _log_file_size(files: list[tuple[str, int]]) -> tuple[str, int] | None:
    """Size of the first file, unless the names of the files show that exactly this one was truncated."""
    if not files:
        return None
    bases = sorted(int(os.path.basename(path)) for path, _ in files)
    step = min((after - before for before, after in itertools.pairwise(bases)), default=0)
    return next(((path, size) for path, size in files if size == step), files[0])


def _first_queue_file(disk: Disk, root: str) -> tuple[str, int] | None:
    for topic in disk.list(root):
        for queue_id in disk.list(os.path.join(root, topic)):
            for found in _numbered_files(disk, os.path.join(root, topic, queue_id)):
                return found
    return None


def _decide(
    layout: Layout, settings: Mapping[str, str], found: dict[str, Any], name: str, file: tuple[str, int] | None
) -> None:
    key = java_key(name)
    given = getattr(layout.config, name)
    if file is None:
        if key not in settings:
            layout.assumed.append(f"{key}={given}")
        return
    path, size = file
    if key in settings and given != size:
        raise ConfigError(
            f"{path} has {size} bytes, but the conf says {key}={settings[key]}: give the broker.conf that this "
            "store was written with, or none"
        )
    found[name] = size


# What kinds of queue there are


def _has_lmqs(disk: Disk, root: str) -> bool:
    if disk.stat(os.path.join(root, "config", "lmqConsumerOffset.json")) is not None:
        return True
    return any(name.startswith(LMQ_PREFIX) for name in disk.list(os.path.join(root, "consumequeue")))


def _batch_topics(disk: Disk, root: str) -> set[str]:
    names = set(disk.list(os.path.join(root, "batchconsumequeue")))
    try:
        table = TOPICS.load(disk, os.path.join(root, "config"), read_only=True)
    except (StoreError, ProtocolError):
        return names
    for name, topic in (table.topic_config_table or {}).items():
        if (topic.attributes or {}).get("queue.type", "").lower() == "batchcq":
            names.add(name)
    return names


# The index


def _decide_index(disk: Disk, layout: Layout, settings: Mapping[str, str], found: dict[str, Any]) -> None:
    config = layout.config
    directory = os.path.join(config.store_path_root_dir, "index")
    files = []
    for name in disk.list(directory):
        path = os.path.join(directory, name)
        stat = disk.stat(path)
        if len(name) == 17 and name.isdigit() and stat is not None and stat.size > 0:
            files.append((path, stat.size))
    keys = ("maxHashSlotNum", "maxIndexNum")
    numbers = (config.max_hash_slot_num, config.max_index_num)
    if not files:
        layout.assumed += [
            f"{key}={value}" for key, value in zip(keys, numbers, strict=True) if key not in settings
        ]
        return
    path, size = files[0]
    same_size = [path for path, length in files if length == size]
    if file_size(*numbers) == size:
        _check_numbers(disk, same_size, size, numbers)
        return
    if all(key in settings for key in keys):
        raise ConfigError(
            f"{path} has {size} bytes, but the conf says maxHashSlotNum={numbers[0]} and maxIndexNum={numbers[1]}, "
            f"which make {file_size(*numbers)}: give the broker.conf that this store was written with, or none"
        )
    deduced = _one_given(size, settings) or _deduce(disk, same_size, size)
    if deduced is None:
        layout.index_is_known = False
        return
    found["max_hash_slot_num"], found["max_index_num"] = deduced


def _check_numbers(disk: Disk, paths: list[str], size: int, numbers: tuple[int, int]) -> None:
    """Refuse settings that make the right size from wrong numbers. Not checked for the defaults, which would cost
    time."""
    if numbers == (_DEFAULTS.max_hash_slot_num, _DEFAULTS.max_index_num) or _is_sound(disk, paths[0], numbers):
        return
    deduced = _deduce(disk, paths, size)
    if deduced is not None and deduced != numbers:
        raise ConfigError(
            f"the index was written with maxHashSlotNum={deduced[0]} and maxIndexNum={deduced[1]}, but the conf "
            f"says {numbers[0]} and {numbers[1]}: give the broker.conf that this store was written with, or none"
        )


def _one_given(size: int, settings: Mapping[str, str]) -> tuple[int, int] | None:
    """Slots and entries if the conf has one of the two."""
    room = size - HEADER_SIZE
    if "maxHashSlotNum" in settings:
        slots = int(settings["maxHashSlotNum"])
        entries, rest = divmod(room - slots * SLOT_SIZE, ENTRY_SIZE)
    elif "maxIndexNum" in settings:
        entries = int(settings["maxIndexNum"])
        slots, rest = divmod(room - entries * ENTRY_SIZE, SLOT_SIZE)
    else:
        return None
    if rest or slots < 1 or entries < 2:
        raise ConfigError(
            f"index files have {size} bytes, which the conf's maxHashSlotNum or maxIndexNum cannot make"
        )
    return slots, entries


def _deduce(disk: Disk, paths: list[str], size: int) -> tuple[int, int] | None:
    """Slots and entries with which the contents are sound, if there is exactly one such pair.

    The newest entry of a file has the offset that its header names as the end, so every position of these bytes
    suggests a pair; rebuilding the file from its entries with that pair must then give identical bytes.
    """
    headers = [(path, IndexHeader.decode(disk.pread(path, 0, HEADER_SIZE))) for path in paths]
    # A file with more entries leaves less to chance, and so does one with a distinctive end offset; the fullest may
    # be damaged, so a few are examined.
    headers.sort(key=lambda one: (one[1].next_entry, one[1].end_offset), reverse=True)
    for path, header in headers[:3]:
        fitting = [pair for pair in sorted(_proposals(disk, path, header, size)) if _is_sound(disk, path, pair)]
        if len(fitting) == 1 and header.next_entry > 1:
            return fitting[0]
        if len(fitting) > 1:
            return None
    return None


def _proposals(disk: Disk, path: str, header: IndexHeader, size: int) -> set[tuple[int, int]]:
    room = size - HEADER_SIZE
    proposed = set()

    def propose(slots: int) -> None:
        entries, rest = divmod(room - slots * SLOT_SIZE, ENTRY_SIZE)
        if not rest and slots >= max(1, header.used_slots) and entries >= max(2, header.next_entry):
            proposed.add((slots, entries))

    propose(room // (SLOT_SIZE + _INDEX_RATIO * ENTRY_SIZE))
    if header.end_offset > 0:
        wanted = header.end_offset.to_bytes(8, "big")
        data = disk.read(path)
        at = data.find(wanted, HEADER_SIZE)
        while at >= 0:
            slots, rest = divmod(at - 4 - (header.next_entry - 1) * ENTRY_SIZE - HEADER_SIZE, SLOT_SIZE)
            if not rest:
                propose(slots)
            at = data.find(wanted, at + 1)
    return proposed


def _is_sound(disk: Disk, path: str, pair: tuple[int, int]) -> bool:
    try:
        file = IndexFile.open(disk, path, *pair, writable=False)
    except StoreDamagedError:
        return False
    try:
        return file.find_damage() is None
    finally:
        file.close()
