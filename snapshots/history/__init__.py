"""The image at an offset or a time of the past, from the files of one node."""
