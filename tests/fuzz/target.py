"""What is fuzzed: a reader of bytes, samples that it accepts, and the errors that it may answer bad ones with."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

from tests.fuzz.mutation import Mutate, mutated

ACCEPTED: Final = "accepted"


class Target:
    """One reader. `take` says in a word what became of an input: ACCEPTED, or the name of a refusal.

    An exception of `refusals` counts as a refusal too. Any other one is a failure.
    """

    def __init__(
        self,
        name: str,
        samples: Callable[[], Sequence[bytes]],
        take: Callable[[bytes], str | None],
        refusals: tuple[type[Exception], ...] = (),
        mutate: Mutate = mutated,
    ) -> None:
        self.name = name
        self.take = take
        self.refusals = refusals
        self.mutate = mutate
        self._make_samples = samples

    @cached_property
    def samples(self) -> Sequence[bytes]:
        """Made when they are first needed: some take a cluster to make."""
        samples = self._make_samples()
        assert samples, self.name
        return samples

    @property
    def refuses(self) -> bool:
        """Whether there is anything that it does not accept. (A note that nobody can read is as good as none.)"""
        return self.name != "flushed"

    def outcome(self, data: bytes) -> str:
        """ACCEPTED, or what it was refused with. Whatever else is raised is the reader's fault."""
        try:
            return self.take(data) or ACCEPTED
        except self.refusals as e:
            return type(e).__name__
