"""The typed view of a log: one Spark table for each record type, with a column for each field of the record."""
