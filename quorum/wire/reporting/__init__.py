"""What a controller tells about itself: metrics, health, and lines in the log."""
