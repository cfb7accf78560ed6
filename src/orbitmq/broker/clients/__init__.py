"""Connected clients: heartbeats, groups, subscriptions, queue locks, callbacks."""
