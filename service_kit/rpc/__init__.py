"""What both daemons share as gRPC servers and clients."""
