"""The signature of a request, as RocketMQ's clients with an access key make it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.admin.config import AdminConfig
    from orbitmq.protocol.command.command import Command


def sign(command: Command, config: AdminConfig) -> None:
    """Add the access key and the signature to a request: HMAC-SHA1 over the values in the order of their names."""
    fields = command.ext_fields
    fields["AccessKey"] = config.access_key
    if config.security_token:
        fields["SecurityToken"] = config.security_token
    content = "".join(value for name, value in sorted(fields.items()) if name != "Signature").encode()
    digest = hmac.new(config.secret_key.encode(), content + (command.body or b""), hashlib.sha1).digest()
    fields["Signature"] = base64.b64encode(digest).decode()
