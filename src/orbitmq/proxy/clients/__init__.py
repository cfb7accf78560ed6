"""Clients: who is connected, with which settings, and the streams over which they are sent commands."""
