"""The format of the log: records, their encoding, batches, ids and errors. Pure: values and bytes, no files."""
