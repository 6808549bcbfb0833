"""`WatchService` over one node's log."""
