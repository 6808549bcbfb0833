"""Who leads and keeps each partition: placement, elections, ISR changes, walks in slices."""
