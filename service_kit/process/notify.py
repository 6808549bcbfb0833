"""Tells systemd how the daemon is (sd_notify(3)): a datagram to the socket that `NOTIFY_SOCKET` names.

Say `READY=1` once the node knows a leader or is one, `STATUS=...` when its role changes, `STOPPING=1` at the start of a
stop, `WATCHDOG=1` from the loop that must keep turning. Without systemd all of these do nothing.
"""

import os
import socket


def notify(state: str) -> bool:
    """Sends `state` (such as `READY=1`; several lines are fine). False if nobody listens; never raises for that."""
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
        return False  # a supervisor that has gone is no reason for a node to stop
    return True
