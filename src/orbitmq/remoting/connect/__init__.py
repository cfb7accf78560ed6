"""Accepting connections: PROXY headers, trusted proxies, TLS detection."""
