"""Bringing a cluster back that lost its majority: survey, plan, carry out."""
