"""Appending messages to the commit log: one by one, in batches, by the native extension."""
