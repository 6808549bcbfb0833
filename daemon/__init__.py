"""Ground floor: what both daemons share. Config, logs, signals, clock, TLS, servers, health, metrics, dialing."""
