"""The image of the cluster, and the effect of each record on it. Pure."""
