"""The active controller: from a request to a batch, and what waits for its commit."""
