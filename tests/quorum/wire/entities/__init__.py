"""Tests of EntityService over gRPC."""
