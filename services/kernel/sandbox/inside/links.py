"""Links that an agent leaves to read, when it is graded, what it cannot read itself: the tests, or files that the
verifier has open.
"""

from _collections_abc import Callable  # the public name loads a large module

CLOSED = (b"/tests", b"/logs/verifier", b"/proc")
"""Neither they nor what holds them may be led to."""
DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/shm")
"""Of /dev only these: /dev/fd and /dev/stdin are what the verifier reads."""
STEPS_MAX = 40
"""The kernel follows no more links on one way."""
ReadLink = Callable[[bytes], "bytes | None"]
"""The text of the link at an absolute path free of links before its last part; None where there is none."""


def leads_astray(path: bytes, read_link: ReadLink) -> bool:
    """Whether whoever follows the link at `path` comes to CLOSED, to another device, or to a folder above those."""
    place, pending, steps = b"", path.split(b"/"), 0
    while pending:
        part = pending.pop(0)
        if part in (b"", b"."):
            continue
        if part == b"..":
            place = place.rpartition(b"/")[0]
            continue
        here = place + b"/" + part
        if here in CLOSED or (place == b"/dev" and here not in DEVICES):
            return True
        text = read_link(here)
        if text is None:
            place = here
            continue
        steps += 1
        if steps > STEPS_MAX:
            return False
        pending[:0] = text.split(b"/")
        if text.startswith(b"/"):
            place = b""
    return place == b"/dev" or any(closed.startswith(place + b"/") for closed in CLOSED)
