"""The client's end of the streams of AdminService."""
