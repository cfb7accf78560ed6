"""Automatic failover: a broker whose role a controller decides. Identity, election, sync state set, lease, HA."""
