"""An image as a tree of names and values, as a file system shows files."""
