"""The shell: an image as a tree that an operator walks through."""
