"""What a broken law is."""


class LawBroken(AssertionError):
    """One of the laws does not hold; `law` is the number and name of the invariant."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


def hold(condition: bool, law: str, text: str) -> None:
    """`law` holds if `condition` does.

    Raises:
        LawBroken: if not.
    """
    if not condition:
        raise LawBroken(law, text)
