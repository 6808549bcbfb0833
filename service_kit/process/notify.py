"""Notifications to systemd (sd_notify(3)): a datagram to the socket in `NOTIFY_SOCKET`.

`READY=1` once the node knows a leader or is the leader; `STATUS=...` when its role changes; `STOPPING=1` at the start of a stop;
`WATCHDOG=1` regularly from the event loop. Without systemd a notification does nothing.
"""

import os
import socket


def notify(state: str) -> bool:
    """Sends `state` (such as `READY=1`, or several lines). Returns False, and never raises, if no supervisor receives it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract namespace
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.connect(address)
            sender.send(state.encode())
    except OSError:
        return False  # a node goes on without its supervisor
    return True
