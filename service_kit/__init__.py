"""The service kit: config, logs, signals, clock, TLS, servers, health, metrics and channels, shared by both daemons."""

import os

# gRPC's native code writes lines to stderr, past the loggers and in another format. gRPC reads this variable at the first import.
# Every serious problem also raises an error, for example a port in use or a refused handshake.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
