"""Values about brokers: the happenings of a broker, and the reasons for its state."""
