"""The connections to the other controllers."""
