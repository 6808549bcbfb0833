"""The service kit: config, logs, signals, clock, TLS, servers, health, metrics and channels, shared by both daemons."""

import os

# gRPC's native code writes its own lines to stderr, past the loggers and in another format. gRPC reads this variable at its first
# import. Every problem that matters also raises an error that we report (a port in use, a refused handshake).
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
