"""The relay claims messages of the outbox and records the outcomes: leases, ordering keys, limits, retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from orbitmq import InvalidMessageError, Message
from orbitmq.outbox import Outbox, RelayConfig, RelayOptions
from orbitmq.outbox import claim as claim_module
from orbitmq.outbox.claim import ClaimStatements
from orbitmq.outbox.outcomes import Failure, Outcome, OutcomeStatements
from support.client.user_databases import KINDS, databases, engine_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Unpack

    from orbitmq.outbox.rows import ClaimedMessage
    from support.client.user_databases import Databases

outbox = Outbox()
table = outbox.table


class Claimant:
    """A relay without a producer."""

    def __init__(self, engine: sa.Engine, name: str, **options: Unpack[RelayOptions]) -> None:
        config = RelayConfig(**options)
        self.engine = engine
        self.name = name
        self.claiming = ClaimStatements(table, config)
        self.settling = OutcomeStatements(table, config)

    def candidates(self) -> list[int]:
        with self.engine.connect() as connection:
            return self.claiming.candidates(connection)

    def claim(self, candidates: list[int] | None = None) -> list[list[ClaimedMessage]]:
        chosen = self.candidates() if candidates is None else candidates
        with self.engine.begin() as connection:
            return self.claiming.claim(connection, chosen, self.name)

    def claims(self) -> list[list[str]]:
        """Bodies of claimed messages, by ordering key."""
        return [[one.message.body.decode() for one in group] for group in self.claim()]

    def settle(self, outcome: Outcome) -> None:
        with self.engine.begin() as connection:
            self.settling.record(connection, outcome, self.name)

    def sends_all(self) -> list[str]:
        groups = self.claim()
        every = [one for group in groups for one in group]
        self.settle(Outcome(sent=every))
        return [one.message.body.decode() for one in every]


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    with databases(request.param) as made:
        yield made


@pytest.fixture
def engine(server: Databases, tmp_path: Path) -> Iterator[sa.Engine]:
    with engine_at(server.new(tmp_path)) as made:
        outbox.create_table(made)
        yield made


def add(engine: sa.Engine, *bodies: str) -> None:
    """Messages whose first letter is their key; those that begin with a dash have none."""
    with engine.begin() as connection:
        outbox.add_all(
            connection,
            [Message("orders", body, sharding_key=None if body[0] == "-" else body[0]) for body in bodies],
        )


def later(engine: sa.Engine, seconds: float) -> None:
    """Let so much time have passed for the table."""
    with engine.begin() as connection:
        for name in ("due_at", "created_at", "sent_at"):
            column = table.c[name]
            connection.execute(sa.update(table).values({column: column - round(seconds * 1000)}))


def row(engine: sa.Engine, number: int) -> sa.Row[object]:
    with engine.connect() as connection:
        return connection.execute(sa.select(table).where(table.c.id == number)).one()


def test_what_one_relay_has_claimed_no_other_one_gets(engine: sa.Engine) -> None:
    first, second = Claimant(engine, "first", batch_size=2), Claimant(engine, "second", batch_size=2)
    add(engine, "-1", "-2", "-3", "-4", "-5")
    assert first.claims() == [["-1"], ["-2"]]
    assert second.claims() == [["-3"], ["-4"]]
    assert first.claims() == [["-5"]]
    assert second.claims() == []


def test_of_what_both_want_one_gets_it(engine: sa.Engine) -> None:
    first, second = Claimant(engine, "first"), Claimant(engine, "second")
    add(engine, "-1", "a1", "a2")
    wanted, too = first.candidates(), second.candidates()
    assert wanted == too == [1, 2]
    assert first.claim(wanted)
    assert second.claim(too) == []


def test_what_is_not_finished_comes_back_when_the_lease_is_over(engine: sa.Engine) -> None:
    first, second = Claimant(engine, "first", lease=60), Claimant(engine, "second", lease=60)
    add(engine, "-1", "a1", "a2")
    assert first.claims() == [["a1", "a2"], ["-1"]]
    later(engine, 59)
    assert second.claims() == []
    later(engine, 2)
    assert second.claims() == [["a1", "a2"], ["-1"]]


def test_what_was_sent_is_not_claimed_again(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first")
    add(engine, "-1", "a1")
    assert claimant.sends_all() == ["a1", "-1"]
    later(engine, 3600)
    assert claimant.claims() == []
    sent = row(engine, 2)
    assert (sent.due_at, sent.lane, sent.taken_by) == (None, None, None)
    assert sent.sent_at is not None


def test_an_ordering_key_is_claimed_whole_and_in_order_by_one_relay(engine: sa.Engine) -> None:
    first, second = Claimant(engine, "first", batch_size=3), Claimant(engine, "second")
    add(engine, "a1", "a2", "b1", "a3", "a4", "b2", "-1")
    assert first.claims() == [["a1"], ["b1"], ["-1"]]
    # Those behind have no head any more that could be claimed.
    assert second.claims() == []


def test_room_that_is_left_is_filled_from_behind(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", batch_size=5)
    add(engine, "a1", "a2", "b1", "a3", "a4", "b2")
    assert claimant.claims() == [["a1", "a2", "a3", "a4"], ["b1"]]


def test_what_is_behind_one_that_failed_waits_for_it(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", first_retry=10)
    add(engine, "a1", "a2", "b1")
    (a1, a2), (b1,) = claimant.claim()
    claimant.settle(Outcome(sent=[b1], failed=[Failure(a1, ValueError("no"))], held=[a2]))
    add(engine, "a3", "b2")
    assert claimant.claims() == [["b2"]]
    assert (row(engine, 1).failures, row(engine, 2).failures) == (1, 0)
    assert row(engine, 1).last_error == "ValueError: no"
    later(engine, 11)
    assert claimant.claims() == [["a1", "a2", "a3"]]


def test_without_order_nothing_waits(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", in_order=False, first_retry=10)
    add(engine, "a1", "a2", "a3")
    groups = claimant.claim()
    assert [len(group) for group in groups] == [1, 1, 1]
    claimant.settle(Outcome(failed=[Failure(groups[0][0], "no")], held=[groups[1][0], groups[2][0]]))
    assert claimant.claims() == [["a2"], ["a3"]]


def test_a_failed_message_waits_twice_as_long_each_time(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", first_retry=10, longest_retry=35)
    add(engine, "-1")
    for waits in (10, 20, 35, 35):
        ((one,),) = claimant.claim()
        claimant.settle(Outcome(failed=[Failure(one, "no")]))
        later(engine, waits - 1)
        assert claimant.claims() == []
        later(engine, 1)
    assert row(engine, 1).failures == 4
    assert RelayConfig(first_retry=1, longest_retry=60).retry_after(10_000) == 60


def test_who_has_lost_its_lease_cannot_put_off_what_another_has(engine: sa.Engine) -> None:
    first, second = Claimant(engine, "first", lease=60), Claimant(engine, "second", lease=60)
    add(engine, "a1", "a2")
    ((a1, a2),) = first.claim()
    later(engine, 61)
    assert second.claims() == [["a1", "a2"]]
    first.settle(Outcome(failed=[Failure(a1, "too late")], held=[a2]))
    assert [row(engine, number).taken_by for number in (1, 2)] == ["second", "second"]
    assert row(engine, 1).failures == 0


def test_who_has_lost_its_lease_may_still_say_what_was_sent(engine: sa.Engine) -> None:
    first, second = Claimant(engine, "first", lease=60), Claimant(engine, "second", lease=60)
    add(engine, "a1", "a2")
    ((a1, a2),) = first.claim()
    later(engine, 61)
    ((again, _),) = second.claim()
    first.settle(Outcome(sent=[a1], held=[a2]))
    when = row(engine, 1).sent_at
    assert when is not None
    second.settle(Outcome(failed=[Failure(again, "no")]))
    assert (row(engine, 1).sent_at, row(engine, 1).due_at) == (when, None)


def test_bytes_are_limited_but_one_always_fits(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", batch_bytes=10)
    add(engine, "a" * 20, "a2", "b1")
    assert claimant.claims() == [["a" * 20]]
    assert claimant.claims() == [["b1"]]
    add(engine, "-1234567", "-89", "c1")
    assert claimant.claims() == [["-1234567"]]
    assert claimant.claims() == [["c1"], ["-89"]]


def test_an_ordering_key_with_much_before_it_does_not_keep_others_waiting(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_module, "WINDOW", 10)
    first, second = Claimant(engine, "first", batch_size=4), Claimant(engine, "second", batch_size=4)
    add(engine, *(f"a{number:02}" for number in range(30)), "b1", "-1")
    # What has waited longest fills a batch: no need to look any further.
    assert first.claims() == [["a00", "a01", "a02", "a03"]]
    # There, all is behind what the first one has.
    assert second.claims() == [["b1"], ["-1"]]
    assert second.claims() == []


def test_everything_is_sent_once_and_each_key_in_order(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_module, "WINDOW", 20)
    claimants = [Claimant(engine, name, batch_size=7) for name in ("first", "second", "third")]
    wanted = [f"{'abcd-'[number % 5]}{number:03}" for number in range(200)]
    add(engine, *wanted)
    sent: list[str] = []
    rounds = 0
    while len(sent) < len(wanted):
        sent += claimants[rounds % 3].sends_all()
        rounds += 1
        assert rounds < 1000
    assert sorted(sent) == sorted(wanted)
    for key in "abcd":
        mine = [body for body in sent if body[0] == key]
        assert mine == sorted(mine)


def test_one_that_is_given_up_lets_those_behind_it_go(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", first_retry=10)
    add(engine, "a1", "a2")
    ((a1, a2),) = claimant.claim()
    claimant.settle(Outcome(failed=[Failure(a1, "no")], held=[a2]))
    with engine.begin() as connection:
        assert outbox.discard(connection, a1.id)
    assert claimant.claims() == [["a2"]]


def test_one_that_failed_can_be_tried_at_once(engine: sa.Engine) -> None:
    claimant = Claimant(engine, "first", first_retry=10)
    add(engine, "-1")
    ((one,),) = claimant.claim()
    with engine.begin() as connection:
        assert not outbox.send_soon(connection, one.id)
    claimant.settle(Outcome(failed=[Failure(one, "no")]))
    assert claimant.claims() == []
    with engine.begin() as connection:
        assert outbox.send_soon(connection, one.id)
    assert claimant.claims() == [["-1"]]


def test_what_was_sent_is_kept_for_a_while(engine: sa.Engine) -> None:
    claimant, for_ever = Claimant(engine, "first", keep_sent=100), Claimant(engine, "second", keep_sent=None)
    add(engine, "-1", "-2")
    assert claimant.sends_all() == ["-1", "-2"]
    add(engine, "-3")

    def cleaned(by: Claimant) -> int:
        with engine.begin() as connection:
            return by.settling.clean(connection)

    later(engine, 99)
    assert cleaned(claimant) == 0
    later(engine, 2)
    assert cleaned(for_ever) == 0
    assert cleaned(claimant) == 2
    later(engine, 1000)
    assert cleaned(claimant) == 0
    assert claimant.claims() == [["-3"]]


def test_an_error_of_any_kind_fits() -> None:
    claimed: ClaimedMessage = None  # type: ignore[assignment]
    assert Failure(claimed, "\x00" + "x" * 1000).text == "x" * 500


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 0},
        {"batch_size": 0},
        {"batch_size": 100_000},
        {"keep_sent": -1},
        {"alarm_after": 0},
        {"poll_interval": -1},
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: RelayOptions) -> None:
    with pytest.raises(InvalidMessageError, match=next(iter(options))):
        RelayConfig(**options)
