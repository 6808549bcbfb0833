"""Tests of the deadlines of sessions."""
