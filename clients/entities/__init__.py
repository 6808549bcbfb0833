"""Entities, sessions and watches for programs in Python; `core` is the pure half."""
