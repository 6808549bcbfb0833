"""The committed changes, printed as they come."""
