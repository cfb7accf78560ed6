"""Rebuild of consume queues and index of a store from its log, in parallel."""
