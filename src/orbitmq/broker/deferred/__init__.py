"""Shared by all deferred messages: those stored under a system topic until they are due."""
