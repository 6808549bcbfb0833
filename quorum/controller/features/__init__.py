"""Features: the levels on which all nodes of the cluster agree, and the controllers' registrations."""
