"""The exception for a broken law."""


class LawBroken(AssertionError):
    """A law does not hold; `law` is the number and name of the invariant."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


def hold(condition: bool, law: str, text: str) -> None:
    """Checks `law`, which holds if `condition` is true.

    Raises:
        LawBroken: the condition is false.
    """
    if not condition:
        raise LawBroken(law, text)
