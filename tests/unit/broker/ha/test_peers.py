"""Who may copy the log."""

from __future__ import annotations

import pytest

from orbitmq.broker.ha.peers import admission, check_peers
from orbitmq.platform.settings import ConfigError


@pytest.mark.parametrize(
    ("allowed", "has_users", "address", "is_admitted"),
    [
        ("", False, "203.0.113.9:5000", True),
        ("10.0.0.8", False, "10.0.0.8:5000", True),
        ("10.0.0.8,10.1.0.0/16", False, "10.1.2.3:5000", True),
        ("10.0.0.8", False, "127.0.0.1:5000", False),
        ("", True, "127.0.0.1:5000", True),
        ("", True, "[::1]:5000", True),
        ("", True, "10.0.0.8:5000", False),
        ("10.0.0.8", True, "10.0.0.8:5000", True),
        ("10.0.0.8", True, "10.0.0.9:5000", False),
        ("10.0.0.8", True, "", False),
    ],
)
def test_peers_are_admitted_by_their_address(
    allowed: str, has_users: bool, address: str, is_admitted: bool
) -> None:
    refusal = admission(allowed, has_users=has_users)(address)
    assert (refusal is None) == is_admitted
    if refusal is not None:
        assert "haAllowedPeers" in refusal


def test_a_wrong_list_of_peers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"haAllowedPeers: .*give addresses or CIDR blocks"):
        check_peers("10.0.0.8,somewhere")
