"""Leaders on request, and leaders that return by themselves to the preferred replicas."""
