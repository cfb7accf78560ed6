"""What was lost, doubled, out of order, slow or stuck: checks, and the report of what they find."""
