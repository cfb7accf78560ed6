"""The broker's own history: a bounded journal of events, kept over restarts and readable by tools."""
