"""Tests of the data plane of `brokerd`, around the replicas."""
