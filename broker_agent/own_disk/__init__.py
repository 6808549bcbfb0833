"""A broker's own disk: its log, whose end waits in memory while the disk is full, and the notes about its processes."""
