"""Messages: between their protobuf form and the properties and records of the broker."""
