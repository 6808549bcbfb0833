"""Clusters that begin with an import."""
