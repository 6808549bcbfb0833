"""Recipes over entities, sessions and watches: lock, election, members, barrier, live settings."""
