"""Tests of the decisions about entities, kinds and sessions of clients."""
