"""Users, passwords, sessions and roles of the console."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.dashboard.auth import passwords
from orbitmq.dashboard.auth.passwords import hash_password, verify_password
from orbitmq.dashboard.auth.roles import Actor, ForbiddenError, NotSignedInError, Role
from orbitmq.dashboard.auth.sessions import IDLE_SECONDS, MAX_PER_USER, MAX_SECONDS, Sessions, is_csrf_token
from orbitmq.dashboard.auth.users import MAX_FAILURES, WAIT_SECONDS, Users

if TYPE_CHECKING:
    from pathlib import Path


class Watch:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "N", 2)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def users(tmp_path: Path, watch: Watch) -> Users:
    return Users(tmp_path / "users.json", watch.now)


def test_a_hash_is_salted_and_verifies_its_password_only() -> None:
    stored = hash_password("correct horse")
    assert stored != hash_password("correct horse")
    assert verify_password("correct horse", stored)
    assert not verify_password("correct hors", stored)
    for damaged in ("", "scrypt$x", "plain$1$1$1$AA==$AA==", "scrypt$3$8$5$AA==$AA=="):
        assert not verify_password("correct horse", damaged)


async def test_the_first_start_makes_an_administrator_with_a_random_password(users: Users, tmp_path: Path) -> None:
    password = users.create_first()
    assert password is not None
    assert len(password) >= 20
    assert users.create_first() is None
    assert (await users.sign_in("admin", password, "127.0.0.1")).role is Role.ADMIN
    file = tmp_path / "users.json"
    assert password not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_users_are_there_after_a_restart(users: Users, tmp_path: Path, watch: Watch) -> None:
    await users.put("ann", Role.OPERATOR, "long enough")
    again = Users(tmp_path / "users.json", watch.now)
    assert [(user.name, user.role) for user in again.all()] == [("ann", Role.OPERATOR)]
    assert (await again.sign_in("ann", "long enough", "127.0.0.1")).name == "ann"


async def test_wrong_passwords_make_a_name_wait_at_this_address_only(users: Users, watch: Watch) -> None:
    await users.put("ann", Role.VIEWER, "long enough")
    for _ in range(MAX_FAILURES):
        with pytest.raises(NotSignedInError, match="name or the password is wrong"):
            await users.sign_in("ann", "guess", "10.0.0.1")
    with pytest.raises(NotSignedInError, match="too many"):
        await users.sign_in("ann", "long enough", "10.0.0.1")
    assert (await users.sign_in("ann", "long enough", "10.0.0.2")).name == "ann"
    watch.seconds += WAIT_SECONDS + 1
    assert (await users.sign_in("ann", "long enough", "10.0.0.1")).name == "ann"


@pytest.mark.parametrize(
    ("name", "password", "match"),
    [
        ("a b", "long enough", "the name of a user"),
        ("<script>", "long enough", "the name of a user"),
        ("ann", "short", "8 to 256 characters"),
        ("ann", None, "needs a password"),
    ],
)
async def test_an_invalid_user_is_refused(users: Users, name: str, password: str | None, match: str) -> None:
    with pytest.raises(InvalidRequestError, match=match):
        await users.put(name, Role.VIEWER, password)
    assert users.all() == []


async def test_the_last_administrator_stays(users: Users) -> None:
    users.create_first()
    with pytest.raises(InvalidRequestError, match="last administrator"):
        users.delete("admin")
    with pytest.raises(InvalidRequestError, match="last administrator"):
        await users.put("admin", Role.VIEWER, None)
    await users.put("ann", Role.ADMIN, "long enough")
    users.delete("admin")
    with pytest.raises(NotFoundError):
        users.delete("admin")


def test_a_damaged_file_of_users_is_refused_by_name(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "users.json"
    file.write_text('{"users": {"ann": {"role": "emperor", "password": ""}}}')
    with pytest.raises(InvalidRequestError, match=r"users\.json cannot be read"):
        Users(file, watch.now)


async def test_a_session_ends_after_idle_time_and_at_its_limit(users: Users, watch: Watch) -> None:
    await users.put("ann", Role.VIEWER, "long enough")
    sessions = Sessions(users, watch.now)
    token, session = sessions.begin("ann")
    assert sessions.of_token(token) is session
    assert sessions.of_token(f"{token}x") is None
    assert token not in repr(session)
    assert is_csrf_token(session, session.csrf)
    assert not is_csrf_token(session, "")
    for _ in range(int(MAX_SECONDS // IDLE_SECONDS)):
        watch.seconds += IDLE_SECONDS - 1
        assert sessions.of_token(token) is not None
    watch.seconds += 10
    assert sessions.of_token(token) is None
    token, _ = sessions.begin("ann")
    watch.seconds += IDLE_SECONDS + 1
    assert sessions.of_token(token) is None


async def test_an_open_page_has_the_role_of_today(users: Users, watch: Watch) -> None:
    await users.put("ann", Role.OPERATOR, "long enough")
    sessions = Sessions(users, watch.now)
    _, session = sessions.begin("ann")
    actor = sessions.actor(session, "127.0.0.1")
    await users.put("ann", Role.VIEWER, None)
    assert sessions.current(actor).role is Role.VIEWER
    sessions.end_of_user("ann")
    with pytest.raises(NotSignedInError):
        sessions.current(actor)


async def test_sessions_are_limited_for_each_user(users: Users, watch: Watch) -> None:
    await users.put("ann", Role.VIEWER, "long enough")
    sessions = Sessions(users, watch.now)
    tokens = [sessions.begin("ann")[0] for _ in range(MAX_PER_USER + 1)]
    assert sessions.of_token(tokens[0]) is None
    assert sessions.of_token(tokens[-1]) is not None


def test_a_role_includes_those_below_it() -> None:
    operator = Actor("ann", Role.OPERATOR, "127.0.0.1")
    operator.check(Role.VIEWER, "reading")
    operator.check(Role.OPERATOR, "sending")
    with pytest.raises(ForbiddenError, match="deleting needs the role admin; ann is operator"):
        operator.check(Role.ADMIN, "deleting")
