"""Errors of access control. Their texts are the remarks that RocketMQ's brokers answer."""

from __future__ import annotations


class AccessError(Exception):
    """A request is refused, with NO_PERMISSION."""


class QuotaError(Exception):
    """A user has sent more requests than allowed. Refused with SYSTEM_BUSY, as by RocketMQ's flow control."""


class AuthenticationError(AccessError):
    """The sender of a request is unknown, disabled, or did not sign it."""


class AuthorizationError(AccessError):
    """A user may not do what a request asks for."""
