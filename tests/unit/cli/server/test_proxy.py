"""Settings of ``orbitmq proxy``: Apache's rmq-proxy.json, or lines of key=value, and options over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.cli.server.proxy import load_proxy_settings
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

APACHE = '{"rocketMQClusterName": "DefaultCluster", "grpcServerPort": 9081, "namesrvAddr": "a:1;b:2", "x": [1]}'


def test_a_settings_file_of_apache_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(APACHE, "utf-8")
    config, cluster = load_proxy_settings(file, {})
    assert config.grpc_server_port == 9081
    assert cluster.rocket_mq_cluster_name == "DefaultCluster"
    assert cluster.name_servers == ["a:1", "b:2"]
    assert "settings without effect: x" in capsys.readouterr().err


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "proxy.conf"
    file.write_text("namesrvAddr=a:1\ngrpcServerPort=9081\nenableProxyAutoRenew=false\n", "utf-8")
    config, cluster = load_proxy_settings(file, {"namesrvAddr": "b:2"}, [("grpcServerPort", "7")])
    assert (config.grpc_server_port, config.enable_proxy_auto_renew, cluster.name_servers) == (7, False, ["b:2"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON object"),
        ("grpcServerPort=1", "no name server is given"),
        ("namesrvAddr=nonsense", "namesrvAddr: 'nonsense' is not host:port"),
        ('{"namesrvAddr": "a:1", "maxMessageSize": "x"}', "maxMessageSize=x"),
        ('{"namesrvAddr": "a:1", "metadataRefreshMillis": 1}', "metadataRefreshMillis=1"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "settings"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=reason):
        load_proxy_settings(file, {})


def test_an_unknown_key_on_the_command_line_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean grpcServerPort"):
        load_proxy_settings(None, {"namesrvAddr": "a:1"}, [("grpcServerPrt", "1")])
