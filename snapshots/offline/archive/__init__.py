"""`quorum-offline archive`: works on the archived segments of one node. Needs no Java."""
