"""What a client of the service imports: the admin client, the submit stream, errors, and client metadata."""
