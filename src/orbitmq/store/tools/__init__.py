"""Offline tools on a store directory: inspect, dump, verify, rebuild."""
