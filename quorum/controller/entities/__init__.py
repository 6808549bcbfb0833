"""Decisions about embedders' own metadata: entities, their kinds, and the sessions of clients."""
