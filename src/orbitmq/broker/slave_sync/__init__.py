"""Metadata of a slave: follows the tables of its master, and returns consumer offsets to it."""
