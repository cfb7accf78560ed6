"""Masters and slaves under the raw load: what replication costs, beside Apache RocketMQ's pairs."""
