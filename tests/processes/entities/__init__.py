"""Entities, sessions and locks on real daemons."""
