"""What both daemons share as processes: clock, configuration, logs, metrics, signals."""
