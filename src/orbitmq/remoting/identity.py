"""Identity of a connection: attributes that this side has set, and no PROXY header can."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.remoting.tls.transport import TlsTransport

IN_PROCESS = "orbitmq:in-process"
"""Attribute of the connections inside a process."""
CERTIFIED_USER = "orbitmq:certified-user"
"""Attribute with the common name of a client certificate that an authority of this server has signed."""


def certified_user(transport: TlsTransport) -> str:
    """The common name in the verified certificate of the peer; empty without one."""
    tls: Any = transport.get_extra_info("ssl_object")
    if not isinstance(tls, ssl.SSLObject):
        return ""
    # Empty unless the certificate was verified.
    certificate: Any = tls.getpeercert() or {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""
