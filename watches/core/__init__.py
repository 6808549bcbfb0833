"""The pure half of a watch: positions, filters, changes, state, queues."""
