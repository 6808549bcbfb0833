"""The audit of a Kafka cluster's metadata logs, on one machine, without Spark."""
