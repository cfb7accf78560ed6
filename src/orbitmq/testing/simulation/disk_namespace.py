"""Names on a virtual disk: the visible tree, and the changes of it that are not durable yet."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
from typing import TYPE_CHECKING

from orbitmq.testing.simulation.disk_pages import PagedFile

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator


@dataclasses.dataclass(eq=False, slots=True)
class Directory:
    """Names and their targets, now and after a power cut."""

    entries: dict[str, Node] = dataclasses.field(default_factory=dict)
    durable: dict[str, Node] = dataclasses.field(default_factory=dict)


Node = PagedFile | Directory


@dataclasses.dataclass(eq=False, slots=True)
class _Change:
    """One atomic change of names that is not durable yet, as (directory, name, new target)."""

    edits: tuple[tuple[Directory, str, Node | None], ...]
    is_ordered: bool
    """True if it requires every earlier change: a directory was moved or removed."""

    def keys(self) -> set[tuple[int, str]]:
        return {(id(directory), name) for directory, name, _ in self.edits}

    def apply(self, table: Callable[[Directory], dict[str, Node]]) -> None:
        for directory, name, node in self.edits:
            if node is None:
                table(directory).pop(name, None)
            else:
                table(directory)[name] = node


def refusal(error: int, path: str) -> OSError:
    """The ``OSError`` that the system raises for this errno."""
    return OSError(error, os.strerror(error), path)


@functools.lru_cache(maxsize=4096)
def parts(path: str) -> tuple[str, ...]:
    """The names in a path. A relative path starts at the root, the working directory of a virtual process."""
    if not path:
        raise refusal(errno.ENOENT, path)
    return tuple(part for part in os.path.normpath("/" + path).split("/") if part)


class NameTree:
    """Directories and files by path, without contents."""

    __slots__ = ("_pending", "_root")

    def __init__(self, root: Directory | None = None) -> None:
        self._root = Directory() if root is None else root
        self._pending: list[_Change] = []

    # Finding

    def line(self, path: str) -> list[Node]:
        """All nodes from the root to a path, inclusive; raises if one is missing."""
        nodes: list[Node] = [self._root]
        for name in parts(path):
            node = self._directory(nodes[-1], path).entries.get(name)
            if node is None:
                raise refusal(errno.ENOENT, path)
            nodes.append(node)
        return nodes

    def find(self, path: str) -> Node | None:
        try:
            return self.line(path)[-1]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def file(self, path: str) -> PagedFile:
        node = self.line(path)[-1]
        if isinstance(node, Directory):
            raise refusal(errno.EISDIR, path)
        return node

    def files(self) -> Iterator[PagedFile]:
        """Every file that has a name or may have one after a power cut, without duplicates."""
        seen: set[int] = set()
        nodes: list[Node] = [self._root]
        nodes += [node for change in self._pending for _, _, node in change.edits if node is not None]
        while nodes:
            node = nodes.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, PagedFile):
                yield node
            else:
                nodes += [*node.entries.values(), *node.durable.values()]

    def room(self) -> int:
        """Bytes that named files take on the disk."""
        total = 0
        directories = [self._root]
        while directories:
            for node in directories.pop().entries.values():
                if isinstance(node, Directory):
                    directories.append(node)
                else:
                    total += node.room
        return total

    @staticmethod
    def _directory(node: Node | None, path: str) -> Directory:
        if node is None:
            raise refusal(errno.ENOENT, path)
        if isinstance(node, PagedFile):
            raise refusal(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory and name of a path, whether or not it exists."""
        names = parts(path)
        if not names:
            raise refusal(errno.EBUSY, path)
        directory = self._root
        for name in names[:-1]:
            directory = self._directory(directory.entries.get(name), path)
        return directory, names[-1]

    # Changing

    def add(self, path: str, file: PagedFile) -> None:
        """Name a new file; creates directories as needed."""
        names = parts(path)
        directory = self._root
        for name in names[:-1]:
            if name not in directory.entries:
                self._change(_Change(((directory, name, Directory()),), is_ordered=False))
            directory = self._directory(directory.entries[name], path)
        self._change(_Change(((directory, names[-1], file),), is_ordered=False))

    def rename(self, source: str, target: str) -> Node | None:
        """Move a name; returns the previous target of the new name."""
        old_place, new_place = self._place(source), self._place(target)
        node = old_place[0].entries.get(old_place[1])
        if node is None:
            raise refusal(errno.ENOENT, source)
        replaced = new_place[0].entries.get(new_place[1])
        if node is replaced:
            return None
        if isinstance(node, Directory):
            if parts(target)[: len(parts(source))] == parts(source):
                raise refusal(errno.EINVAL, target)
            if isinstance(replaced, PagedFile):
                raise refusal(errno.ENOTDIR, target)
            self._check_empty(replaced, target)
        elif isinstance(replaced, Directory):
            raise refusal(errno.EISDIR, target)
        edits = ((*old_place, None), (*new_place, node))
        self._change(_Change(edits, is_ordered=isinstance(node, Directory)))
        return replaced

    def remove(self, path: str) -> Node | None:
        """Remove a name; returns its target."""
        if self.find(path) is None:
            return None
        directory, name = self._place(path)
        node = directory.entries[name]
        self._check_empty(node, path)
        self._change(_Change(((directory, name, None),), is_ordered=isinstance(node, Directory)))
        return node

    @staticmethod
    def _check_empty(node: Node | None, path: str) -> None:
        if isinstance(node, Directory) and node.entries:
            raise refusal(errno.ENOTEMPTY, path)

    def _change(self, change: _Change) -> None:
        change.apply(lambda directory: directory.entries)
        self._pending.append(change)

    # Durability

    def sync(self, path: str) -> None:
        """Make the names in a directory durable, and the directory itself reachable."""
        line = self.line(path)
        directory = self._directory(line[-1], path)
        keys: set[tuple[int, str]] = set()
        needed = {id(node) for node in line}
        everything = False
        due: list[_Change] = []
        rest: list[_Change] = []
        # Backwards, because a change requires the earlier ones of the same names, and those that created or moved
        # the directories it is in.
        for change in reversed(self._pending):
            if (
                everything
                or not keys.isdisjoint(change.keys())
                or any(where is directory or id(node) in needed for where, _, node in change.edits)
            ):
                due.append(change)
                keys |= change.keys()
                needed.update(id(where) for where, _, _ in change.edits)
                everything = everything or change.is_ordered
            else:
                rest.append(change)
        for change in reversed(due):
            change.apply(lambda where: where.durable)
        self._pending = rest[::-1]

    def after_power_cut(self, rng: random.Random) -> NameTree:
        """The tree after a power cut, with the remaining contents of files."""
        tables = self._surviving_names(rng)

        def survivor(directory: Directory) -> Directory:
            found = tables.get(id(directory), directory.durable)
            entries: dict[str, Node] = {
                name: survivor(node) if isinstance(node, Directory) else node.after_power_cut(rng)
                for name, node in found.items()
            }
            return Directory(entries, dict(entries))

        return NameTree(survivor(self._root))

    def _surviving_names(self, rng: random.Random) -> dict[int, dict[str, Node]]:
        """Contents of directories whose names changed, by the identity of the directory."""
        tables: dict[int, dict[str, Node]] = {}
        undone: set[tuple[int, str]] = set()
        unmade: set[int] = set()
        # As with pages: some cuts keep every change and some keep none.
        share = rng.choice((0.0, 0.5, 0.5, 1.0))
        for change in self._pending:
            happens = rng.random() < share
            if change.is_ordered and undone:
                happens = False
            if not undone.isdisjoint(change.keys()) or any(id(where) in unmade for where, _, _ in change.edits):
                happens = False
            if happens:
                change.apply(lambda where: tables.setdefault(id(where), dict(where.durable)))
                continue
            undone |= change.keys()
            # A file that would move into a directory that was never created stays where it was.
            if len(change.edits) == 1:
                unmade.update(id(node) for _, _, node in change.edits if isinstance(node, Directory))
        return tables
