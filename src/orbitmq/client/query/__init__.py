"""Reading without a consumer group: by key, by id, by range."""
