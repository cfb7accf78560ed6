"""The message commands: send, tail, consume, request, reply, find, trace."""
