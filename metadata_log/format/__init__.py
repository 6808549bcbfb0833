"""What the log says: records, their encoding, batches, ids and errors. Pure: values and bytes, no file."""
