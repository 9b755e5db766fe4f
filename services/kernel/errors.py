"""The kernel's errors, by boundary and by what the caller may do.

    KernelError
    ├── LogError            LogConflict, LogPartial, LogTooLarge, LogDenied, LogRefused, LogGap, LogClosed:
    │                       definite
    │                       LogUnavailable: definite, try again; LogUnknown: nobody knows, an identical retry is safe
    ├── ArtifactError       ArtifactMissing, ArtifactCorrupt, ArtifactRefused
    └── DeliveryError       Diverged, Superseded: another body under our id; Unreadable: not ours to understand

Other rooms derive their own from `KernelError`, so that a worker can write any of them down as a note.
"""

import re
from typing import ClassVar


class KernelError(Exception):
    """An error that says where it arose and whether the attempt took effect."""

    boundary: ClassVar[str] = "kernel"
    took_effect: ClassVar[bool | None] = False
    """None: not known."""
    retry: ClassVar[bool] = False
    """True: the same call may do better later."""

    @property
    def kind(self) -> str:
        """The class name in snake case: what a note on the log calls this error."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()


class LogError(KernelError):
    boundary = "log"


class LogTooLarge(LogError):
    """An entry or a batch is over its bound. Big things go to the artifact store, the event carries the digest."""


class LogDenied(LogError):
    """The server refuses this user the subject. Waiting does not help: grant the right, or use the right service."""

    def __init__(self, operation: str, subject: str) -> None:
        super().__init__(f"not permitted: {operation} on {subject!r}; check the user's permissions on the NATS server")
        self.subject = subject


class LogRefused(LogError):
    """The server refuses for a reason that a retry does not change; carries its code."""

    def __init__(self, what: str, code: int, description: str) -> None:
        super().__init__(f"{what}: {description} (nats error {code})")
        self.code = code


class LogGap(LogError):
    """A record of the stream is missing: the log cannot be trusted from there on. Run `envwheel log verify`."""


class LogClosed(LogError):
    """The connection was closed for good, by us or by a protocol error. Open another one."""


class LogUnavailable(LogError):
    """No server answered, so nothing took effect."""

    retry = True


class LogUnknown(LogError):
    """The answer was lost: the append may or may not be on the log. The identical append may be repeated."""

    took_effect = None
    retry = True


class ArtifactError(KernelError):
    boundary = "artifacts"

    def __init__(self, digest: str, why: str) -> None:
        super().__init__(f"artifact {digest}: {why}")
        self.digest = digest


class ArtifactMissing(ArtifactError):
    """The store has no bytes of this digest."""


class ArtifactCorrupt(ArtifactError):
    """The bytes in the store do not have the digest they are filed under."""


class ArtifactRefused(ArtifactError):
    """Not a digest, or not what its digest says: nothing was stored."""


class DeliveryError(KernelError):
    boundary = "delivery"


class Unreadable(DeliveryError):
    """A message of an unknown type, version or shape. A worker parks it, a decider stops."""


class Diverged(DeliveryError):
    """The log holds another body under an id that must have one body only: a bug, so the service stops."""

    def __init__(self, subject: str, stored_digest: str, ours_digest: str) -> None:
        super().__init__(
            f"{subject}: the log holds body sha256 {stored_digest}, this service made {ours_digest}; equal causes must "
            "give equal bodies (compare code, engine and thread versions; see `envwheel log show`)"
        )
        self.subject = subject
        self.stored_digest = stored_digest
        self.ours_digest = ours_digest


class OtherVersions(DeliveryError):
    """This code decides or speaks in other versions than those that the run began with."""

    def __init__(self, differing: list[str]) -> None:
        super().__init__(f"{'; '.join(differing)}: go on with the version of envwheel that began the run")


class Superseded(DeliveryError):
    """Another worker's answer came first and counts; ours is dropped."""
