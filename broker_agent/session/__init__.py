"""The broker's session: registration, fetching, lease, state. Pure."""
