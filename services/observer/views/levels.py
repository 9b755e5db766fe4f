"""What a replay level answers."""

import msgspec


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first thing that is not as it must be."""

    what: str
    """`missing`, `changed`, `added`, `unreadable`, `unanchored`, `table`, `trace`, `checkpoint`."""
    detail: str
    seq: int | None = None
    message: str | None = None
    """Name of the message that the record is or should be."""
    id: str | None = None
    artifact: str | None = None

    def __str__(self) -> str:
        record = f"record {self.seq}" if self.seq is not None else "record"
        about = [f"artifact {self.artifact}"] if self.artifact else []
        about += [f"{record}, {self.message} {self.id}"] if self.id else []
        return f"{self.what}: {'; '.join(about) or record}: {self.detail}"


class LevelReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`equal` is False where the level was not reproducible here, too: nothing unproved passes."""

    level: str
    done: int
    """What was compared: records, tables and files, messages, or checkpoints."""
    equal: bool
    first_difference: Difference | None = None
    not_reproducible: str | None = None
    """Why this level cannot hold here."""
    notes: tuple[str, ...] = ()


class Differs(Exception):
    """Ends a level at its first difference."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference
