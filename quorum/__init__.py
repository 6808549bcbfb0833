import service_kit  # noqa: F401  # before gRPC is first imported: it keeps gRPC's native lines out of the logs
