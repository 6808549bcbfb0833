"""Values of the Raft core: messages, inputs, effects, and the small rules that need nothing else."""
