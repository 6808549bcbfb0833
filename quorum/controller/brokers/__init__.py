"""Brokers' lives: registration, sessions, fencing, controlled shutdown, return."""
