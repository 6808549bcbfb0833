"""The strict replay of one log by many tasks: the records are dealt into shares, and each task replays its share."""
