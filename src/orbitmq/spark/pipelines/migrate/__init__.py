"""From Kafka or another RocketMQ to here, and back: rounds of copying, and the proof at the end."""
