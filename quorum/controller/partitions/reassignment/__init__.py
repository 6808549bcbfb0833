"""Replicas on other brokers: requests of operators, and plans that spread replicas evenly."""
