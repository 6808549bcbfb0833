"""The node's disk: opening, writing, reading, scrubbing, repairing."""
