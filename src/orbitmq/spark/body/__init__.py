"""Message bodies as columns: JSON, Avro, Protobuf."""
