"""Policies: the rules, and where decisions ask them."""
