"""Recovery after a crash: end of the log, queues, deleted topics, quarantine."""
