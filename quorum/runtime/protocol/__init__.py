"""What passes between a node and its surroundings: events, requests, jobs, configuration."""
