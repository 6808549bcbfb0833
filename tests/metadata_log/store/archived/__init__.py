"""Merged archives."""
