"""Rounds in which servers take turns: each is measured while the others are halted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.server.measures import Sample


class Turning(Protocol):
    """A server that is halted except within the block of its turn."""

    name: str

    def turn(self) -> AbstractContextManager[None]: ...


class Telling(Protocol):
    """A listener for the progress of a run."""

    @property
    def tell(self) -> Callable[[str], None]: ...


AServer = TypeVar("AServer", bound=Turning)
Anyone = TypeVar("Anyone")

WARM_UP = -1
"""The number of the round that does not count."""


def one_round(
    servers: Sequence[AServer], number: int, measure: Callable[[AServer, int], Sample]
) -> dict[str, Sample]:
    """Each server's sample of one round, by its name.

    Who goes first changes from round to round, so that none always finds caches and disk as another left them.
    """
    found: dict[str, Sample] = {}
    for server in in_order(servers, number):
        with server.turn():
            found[server.name] = measure(server, number)
    return found


def in_order(servers: Sequence[Anyone], number: int) -> list[Anyone]:
    """The servers as they follow each other in a round: the next one is first in every round.

    Of three and more, every other time around goes backwards, so that none always follows the same one.
    """
    count = len(servers)
    if not count:
        return []
    first = number % count
    order = [*servers[first:], *servers[:first]]
    return order[::-1] if count > 2 and number // count % 2 else order


def interleave(
    servers: Sequence[AServer],
    rounds: int,
    measure: Callable[[AServer, int], Sample],
    bench: Telling,
    name: str,
) -> dict[str, list[Sample]]:
    """One load in so many rounds, and one before them that warms up what the load runs through.

    Servers are halted when it begins and when it ends. ``measure`` gets a server, which runs, and the number of the
    round, which is ``WARM_UP`` for the first.
    """
    return interleave_all({name: Case(servers, measure)}, rounds, bench.tell)[name]


@dataclasses.dataclass(frozen=True, slots=True)
class Case(Generic[AServer]):
    """A load and the servers that it is put on."""

    servers: Sequence[AServer]
    measure: Callable[[AServer, int], Sample]


def interleave_all(
    cases: Mapping[str, Case[AServer]], rounds: int, tell: Callable[[str], None], *, first: int = WARM_UP
) -> dict[str, dict[str, list[Sample]]]:
    """Several loads, each in every round, so that they can be compared.

    Which load goes first changes as well: what one leaves to be written to the disk is written during the next.
    """
    found: dict[str, dict[str, list[Sample]]] = {
        name: {server.name: [] for server in case.servers} for name, case in cases.items()
    }
    for number in range(first, rounds):
        items = list(cases.items())
        for name, case in items if number == WARM_UP else in_order(items, number):
            tell(f"{name}: warming up" if number == WARM_UP else f"{name}: round {number + 1} of {rounds}")
            for system, sample in one_round(case.servers, number, case.measure).items():
                if number != WARM_UP:
                    found[name][system].append(sample)
    return found
