"""What access control and TLS cost: the raw load with signed requests and encrypted connections."""
