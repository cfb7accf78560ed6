"""One failover under load: what is acknowledged in each tenth of a second, and what happens meanwhile."""
