"""The process of a daemon: clock, configuration, logs, metrics, signals."""
