"""RocketMQ's own statistics: counters, samples, runtime info."""
