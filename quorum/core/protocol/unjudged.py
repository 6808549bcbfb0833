"""An unexpected error while the core judged a request about the quorum, before the core had changed anything.

Example: an operator asks leader 1 to transfer the leadership, and the search for a target raises a KeyError. `RaftCore.step`
raises Unjudged; the driver refuses the request, and leader 1 leads on. The next `step` works as if the request had not come.
"""


class Unjudged(Exception):
    """Raised by `RaftCore.step`, without effects. `error` is the unexpected error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error
