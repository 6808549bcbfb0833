"""Watches: streams of the committed changes, from any controller and any broker, out of the node's own log (docs/watches.md)."""
