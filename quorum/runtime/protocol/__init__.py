"""The values that pass between a node and its surroundings: events, requests, jobs, configuration."""
