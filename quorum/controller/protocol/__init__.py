"""Values of the controller: commands, replies, decisions, and the rules that need nothing else."""
