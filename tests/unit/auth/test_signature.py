"""Signatures of requests."""

from __future__ import annotations

import pytest

from orbitmq.auth.credentials import Credentials, CredentialsError, credentials_of_json
from orbitmq.auth.signature import Signer, is_signed_by
from orbitmq.protocol.codes import SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser

SECRET = b"12345678"


def signer() -> Signer:
    return Signer(Credentials("RocketMQ", SECRET.decode()))


def test_a_signature_covers_values_in_the_order_of_names_and_the_body() -> None:
    command = Command(17, ext_fields={"topic": "orders", "perm": "6"}, body=b"body")
    signer().sign(command)
    # openssl dgst -sha1 -hmac 12345678 of "RocketMQ6ordersbody"
    assert command.ext_fields["AccessKey"] == "RocketMQ"
    assert command.ext_fields["Signature"] == "vFEYXQYXg/Bl5TPKp8r7BHne+K4="
    assert is_signed_by(SECRET, command.ext_fields, command.body)


@pytest.mark.parametrize("kind", list(SerializeType))
def test_encoded_frames_are_signed_as_commands_are(kind: SerializeType) -> None:
    plain = Command(310, opaque=7, ext_fields={"b": "orders", "e": "3"}, body=b"x", serialize_type=kind)
    frames = FrameParser().feed(signer().sign_frames(plain.encode() * 2))
    for command in map(Command.decode, frames):
        assert (command.code, command.opaque, command.body) == (310, 7, b"x")
        assert is_signed_by(SECRET, command.ext_fields, command.body)
    assert len(frames) == 2


@pytest.mark.parametrize("part", ["topic", "AccessKey", "Signature", "body", "secret", "added"])
def test_a_change_of_any_part_is_noticed(part: str) -> None:
    command = Command(10, ext_fields={"topic": "orders"}, body=b"body")
    signer().sign(command)
    fields, body, secret = dict(command.ext_fields), command.body, SECRET
    if part == "body":
        body = b"other"
    elif part == "secret":
        secret = b"other"
    else:
        fields[part] = "other"
    assert not is_signed_by(secret, fields, body)


def test_a_request_without_a_signature_is_not_signed() -> None:
    assert not is_signed_by(SECRET, {"AccessKey": "RocketMQ"}, None)


def test_signing_again_replaces_the_signature() -> None:
    command = Command(10, ext_fields={"topic": "orders"})
    signer().sign(command)
    command.ext_fields["topic"] = "others"
    signer().sign(command)
    assert is_signed_by(SECRET, command.ext_fields, None)


def test_old_clients_add_a_field_after_they_have_signed() -> None:
    command = Command(12, ext_fields={"key": "k"})
    signer().sign(command)
    fields = {**command.ext_fields, "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed_by(SECRET, fields, None, version=395)
    assert not is_signed_by(SECRET, fields, None, version=493)


def test_credentials_do_not_print_their_secret() -> None:
    credentials = Credentials("alice", "top-secret", "token-secret")
    assert "secret" not in repr(credentials).replace("secret_key", "")
    assert "top-secret" not in repr(Signer(credentials))


def test_credentials_of_settings_have_rocketmqs_members() -> None:
    assert credentials_of_json('{"accessKey":"a","secretKey":"b"}', "k") == Credentials("a", "b")
    assert credentials_of_json('{"username":"a","password":"b"}', "k") == Credentials("a", "b")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"accessKey":"a"}', '{"accessKey":1,"secretKey":"hidden"}'])
def test_malformed_credentials_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        credentials_of_json(text, "innerClientAuthenticationCredentials")
    assert "innerClientAuthenticationCredentials" in str(caught.value)
    assert "hidden" not in str(caught.value)
