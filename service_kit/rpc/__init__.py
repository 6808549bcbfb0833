"""gRPC servers and clients of both daemons."""
