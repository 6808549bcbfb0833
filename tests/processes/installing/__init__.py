"""A snapshot file that is installed on a stopped node, with real daemons."""
