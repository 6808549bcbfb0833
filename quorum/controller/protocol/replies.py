"""Every reply to a command has `offset`: the end (exclusive) of the decision's batch.

A reader whose view is as of `offset` or later sees the change. The controller does not know the offset when it decides;
`Decision.answer` fills it in.
"""

from typing import Final

from metadata_log.format.ids import Offset

NOT_APPENDED: Final[Offset] = -1
"""The `offset` of a reply whose batch is not in the log yet."""
