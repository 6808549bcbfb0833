"""Values of the controller: commands, replies, decisions and happenings, and the rules that need only these."""
