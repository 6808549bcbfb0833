"""The same client for scripts without an event loop: calls that block."""
