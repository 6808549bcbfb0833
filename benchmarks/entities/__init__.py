"""Entities, watches and sessions beside etcd: `python -m benchmarks.entities`."""

import service_kit  # noqa: F401  first of all, because it makes grpc silent about the load processes that are started later
