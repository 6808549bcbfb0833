"""Recovers a cluster without a majority: survey the directories, plan, carry out."""
