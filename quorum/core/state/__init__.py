"""The parts of a node's state, each with the only methods that change it. `quorum.core.quorum_state` holds one of each."""
