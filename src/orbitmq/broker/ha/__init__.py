"""HA: master and slave brokers. The role, the HA listener and client, waiting for slaves, status."""
