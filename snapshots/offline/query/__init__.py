"""Questions in Spark SQL, over a log or over the tables of a history."""
