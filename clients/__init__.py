"""The client library: the admin client, the submit stream, errors, and the metadata client."""
