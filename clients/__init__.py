"""The client library: the admin client, the submit stream, errors, and client metadata."""
