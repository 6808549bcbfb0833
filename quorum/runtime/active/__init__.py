"""The active controller: from a request to a batch, and the answers that wait for the commit."""
