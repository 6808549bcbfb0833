"""The configuration of a producer: bounds, and values that contradict each other."""

from typing import Any

import pytest

from clients.producer.config import ProducerConfig


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"acks": 2}, "acks is 2"),
        ({"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        ({"batch_size": 2 << 20}, "batch_size is 2097152: it must be at most"),
        ({"max_request_size": 4 << 20}, "max_request_size"),
        ({"linger_ms": -1}, "linger_ms is -1"),
        ({"retry_backoff_ms": 2_000}, "retry_backoff_ms is 2000, which is more than retry_backoff_max_ms"),
        ({"delivery_timeout_ms": 10_000}, "at least linger_ms + request_timeout_ms, 30005"),
        ({"acks": 1, "enable_idempotence": True}, 'enable_idempotence needs acks="all"'),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5 with idempotence"),
    ],
)
def test_a_wrong_value_is_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("+", r"\+")):
        ProducerConfig(**wrong)


def test_idempotence_follows_acks_unless_it_is_set() -> None:
    assert ProducerConfig().is_idempotent and ProducerConfig().acks_number == -1
    assert not ProducerConfig(acks=1).is_idempotent and ProducerConfig(acks=1).acks_number == 1
    assert not ProducerConfig(enable_idempotence=False).is_idempotent
    assert ProducerConfig(acks=1, max_in_flight_requests_per_connection=6).acks_number == 1
