"""What the log means: the image of the cluster, and how records change it. Pure."""
