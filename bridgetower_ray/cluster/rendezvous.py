"""Where the ranks of a trial find each other."""

import secrets
import socket

PORTS = range(20_000, 32_000)  # above those of Ray's workers, below those that the kernel gives away


class RendezvousPort:
    """A port for the ranks of one trial to find each other: free now, and no other trial's of this host until let go.

    The mark is a socket in the kernel's abstract namespace, which has one owner and goes with its process.
    """

    def __init__(self) -> None:
        start = secrets.randbelow(len(PORTS))
        for number in (*PORTS[start:], *PORTS[:start]):
            self._mark = socket.socket(socket.AF_UNIX)
            try:
                self._mark.bind(f"\0bridgetower-ray-port-{number}")
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            except OSError:
                self._mark.close()
            else:
                self.number = number
                return
        raise OSError("no port is free for the ranks to find each other")

    def let_go(self) -> None:
        """Another trial may have it."""
        self._mark.close()
