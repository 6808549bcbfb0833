"""The pure half of the consumer: positions, questions, fetches and the buffer."""
