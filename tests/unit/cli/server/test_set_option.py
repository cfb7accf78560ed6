"""``--set KEY=VALUE`` and the default features of the server commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.config.feature_defaults import FEATURES
from orbitmq.cli.server import broker, nameserver, serve
from orbitmq.cli.server.arguments import ServerParser, check_known
from orbitmq.cli.server.broker import load_broker_settings
from orbitmq.platform.settings import ConfigError
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("parser", [broker.parser(), nameserver.parser(), serve.parser()])
def test_every_server_command_takes_settings(parser: ServerParser) -> None:
    given = parser.parse_args(["--set", "a=1", "--set", "b=x=y"])
    assert given.set == [("a", "1"), ("b", "x=y")]
    with pytest.raises(SystemExit):
        parser.parse_args(["--set", "a"])


def test_a_setting_overrides_the_file_and_an_option_overrides_it(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=24\nenablePropertyFilter=false\n")
    settings = load_broker_settings(
        conf, port=10999, sets=[("fileReservedTime", "12"), ("listenPort", "1")], has_features=True
    )
    assert settings.store.file_reserved_time == 12
    assert settings.broker.listen_port == 10999
    assert not settings.broker.enable_property_filter, "the file comes before the default features"
    assert settings.broker.recall_message_enable


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"--set enablePropertyFiler=true: .* enablePropertyFilter\?"):
        load_broker_settings(None, sets=[("enablePropertyFiler", "true")])
    with pytest.raises(ConfigError, match="lists all"):
        check_known([("q", "1")], ["q"], ["something"])


async def test_serve_quickstart_and_test_clusters_have_the_same_features() -> None:
    served = load_broker_settings(None, has_features=True).texts()
    async with LocalCluster() as cluster:
        tested = cluster.broker("broker-a").settings.texts()
    for key, text in FEATURES.items():
        assert served[key] == tested[key] == text
    assert load_broker_settings(None).texts()["enablePropertyFilter"] == "false", "RocketMQ's default"
