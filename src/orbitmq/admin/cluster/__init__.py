"""Clusters and their servers: topology, brokers, settings, replication, name servers, controllers."""
