"""Transactions: half messages, commit and rollback, check-back."""
