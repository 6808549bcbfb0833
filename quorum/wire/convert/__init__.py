"""Translation between protobuf messages and plain values."""
