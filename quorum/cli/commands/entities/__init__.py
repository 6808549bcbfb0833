"""Entities, their kinds, and the sessions of clients."""
