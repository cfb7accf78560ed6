"""Credentials of clients, from arguments, files and the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.client.config import ClientConfig
from orbitmq.client.credentials import Credentials, CredentialsError, load_credentials, read_credentials_file
from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Credentials("alice", "alices-secret")


def written(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "credentials"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        "accessKey=alice\nsecretKey=alices-secret\n",
        "# of the operator\naccessKey: alice\nsecretKey: 'alices-secret'\n",
        "access_key = alice\nsecret_key = alices-secret",
        '{"accessKey": "alice", "secretKey": "alices-secret"}',
    ],
)
def test_a_file_has_the_keys_on_lines_or_in_json(tmp_path: Path, text: str) -> None:
    assert read_credentials_file(written(tmp_path, text)) == ALICE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, "accessKey=alice\nsecretKey=alices-secret\n", mode)
    with pytest.raises(CredentialsError, match="chmod 600"):
        read_credentials_file(path)


@pytest.mark.parametrize("text", ["", "alices-secret", "accessKey=alice", "{", "[1]"])
def test_a_file_without_credentials_is_refused_without_its_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        read_credentials_file(written(tmp_path, text))
    assert "alices-secret" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="No such file"):
        read_credentials_file(str(tmp_path / "none"))


def test_arguments_come_before_a_file_before_the_environment(tmp_path: Path) -> None:
    path = written(tmp_path, "accessKey=of-file\nsecretKey=s")
    variables = {"ORBITMQ_ACCESS_KEY": "of-variables", "ORBITMQ_SECRET_KEY": "s"}
    found = [
        load_credentials("of-arguments", "s", path=path, environment=variables),
        load_credentials(path=path, environment=variables),
        load_credentials(environment={**variables, "ORBITMQ_CREDENTIALS_FILE": path}),
        load_credentials(environment={"ORBITMQ_CREDENTIALS_FILE": path}),
    ]
    names = [credentials and credentials.access_key for credentials in found]
    assert names == ["of-arguments", "of-file", "of-variables", "of-file"]
    assert load_credentials(environment={}) is None


def test_half_of_the_credentials_are_refused() -> None:
    with pytest.raises(CredentialsError, match="ORBITMQ_SECRET_KEY"):
        load_credentials(environment={"ORBITMQ_ACCESS_KEY": "alice"})
    with pytest.raises(InvalidMessageError, match="both"):
        ClientConfig(name_servers=("a:1",), access_key="alice")


def test_a_client_takes_them_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "alice")
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "alices-secret")
    config = ClientConfig(name_servers=("a:1",))
    assert config.credentials == ALICE
    assert "alices-secret" not in repr(config)
