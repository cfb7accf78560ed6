"""TLS of clients from the environment, for programs and commands that configure none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.remoting import ClientTls

if TYPE_CHECKING:
    from collections.abc import Mapping

CA_VARIABLE = "ORBITMQ_TLS_CA"
CERTIFICATE_VARIABLE = "ORBITMQ_TLS_CERT"
KEY_VARIABLE = "ORBITMQ_TLS_KEY"


def tls_of_environment(environment: Mapping[str, str] | None = None) -> ClientTls | None:
    """TLS with the authorities in the file ``ORBITMQ_TLS_CA``; None if the variable is not set.

    ``system`` stands for the authorities of the system. ``ORBITMQ_TLS_CERT`` and ``ORBITMQ_TLS_KEY`` name the
    certificate of the client, if the servers want one.
    """
    variables = os.environ if environment is None else environment
    authorities = variables.get(CA_VARIABLE, "")
    if not authorities:
        return None
    return ClientTls(
        trusted_path="" if authorities == "system" else authorities,
        certificate_path=variables.get(CERTIFICATE_VARIABLE, ""),
        key_path=variables.get(KEY_VARIABLE, ""),
    )
