"""The passes over entities, without Spark: records in, rows of the tables out."""
