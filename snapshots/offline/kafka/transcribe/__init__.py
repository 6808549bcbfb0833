"""The transcription of Kafka's log: each of its records as a record of ours, offset by offset."""
