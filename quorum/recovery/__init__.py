"""Works on stopped nodes: recovers a cluster without a majority (survey, plan, carry out), and installs snapshot files."""
