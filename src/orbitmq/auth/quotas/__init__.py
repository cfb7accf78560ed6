"""Quotas: requests per second of users and topics."""
