"""Topics and configs."""
