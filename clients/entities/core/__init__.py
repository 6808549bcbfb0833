"""The pure half of entities, sessions and watches: values, decisions, no clock and no wire."""
