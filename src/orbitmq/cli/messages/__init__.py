"""The message commands: send, tail, find, trace."""
