"""Message records: layout, properties, flags, compression, ids, batches, POP receipts."""
