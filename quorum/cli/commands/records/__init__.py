"""`quorumctl produce` and `quorumctl consume`: records of clients, from and to a terminal."""
