"""Tests of elections by configs, and of eligible leader replicas."""
