"""The values between a node and its surroundings: events, requests, jobs, configuration."""
