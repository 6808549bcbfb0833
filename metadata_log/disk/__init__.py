"""Durable files. `files` is the only module of the project that writes and fsyncs them."""
