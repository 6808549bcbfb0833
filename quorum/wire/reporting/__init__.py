"""The reports of a controller about itself: metrics, health, and lines in the log."""
