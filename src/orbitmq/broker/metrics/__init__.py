"""Metrics of a broker: collectors that read its counters and tables, and the service that exports them."""
