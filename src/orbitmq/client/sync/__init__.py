"""Blocking clients."""
