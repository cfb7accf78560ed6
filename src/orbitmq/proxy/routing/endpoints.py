"""Addresses of servers as the protocol writes them."""

from __future__ import annotations

import ipaddress

from orbitmq.proxy.proto import definition_pb2 as pb


def endpoints_of(host: str, port: int) -> pb.Endpoints:
    """One address; its scheme is that of the text."""
    host = host.strip("[]")
    return pb.Endpoints(scheme=_scheme(host), addresses=[pb.Address(host=host, port=port)])


def with_port(endpoints: pb.Endpoints, port: int) -> pb.Endpoints:
    """The same hosts with another port."""
    addresses = [pb.Address(host=address.host, port=port) for address in endpoints.addresses]
    return pb.Endpoints(scheme=endpoints.scheme, addresses=addresses)


def _scheme(host: str) -> pb.AddressScheme:
    try:
        return pb.IPv4 if ipaddress.ip_address(host).version == 4 else pb.IPv6
    except ValueError:
        return pb.DOMAIN_NAME
