"""The reading half of the data source: options, ends, parts of files, tables, streams."""
