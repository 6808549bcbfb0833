"""The applied image: the state machine, its snapshots and digests."""
