"""Ground floor: what both daemons share. Config, logs, signals, clock, TLS, servers, health, metrics, dialing."""

import os

# gRPC's native code writes lines of its own to stderr, past every logger and in another form; it reads this when it is
# first imported. What matters comes as an error that we report (a port in use, a refused handshake).
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
