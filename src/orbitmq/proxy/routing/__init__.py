"""Routes: the queues of a topic as clients see them, and the choice of a queue for a message."""
