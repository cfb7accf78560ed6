"""Consume queues and index of a store, built anew from its log in parallel."""
