"""The directory of the tables, local or at a URL, and the rows in it."""
