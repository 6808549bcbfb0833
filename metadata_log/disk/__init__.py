"""Files that keep what was written: the only room that fsyncs."""
