"""Tamper evidence: a hash chain over all records, and sealed segments with a Merkle root each. Pure functions.

A leaf is `u32 length of subject | subject | record`, so that no byte can wander from one to the other. Roots are
RFC 6962 (tags 0x00 for leaves, 0x01 for nodes); chain links carry the tag 0x02: none of the three passes for another.
A chain kept beside its log proves nothing against the log's owner: keep a head or a root elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from schemas.identity import merkle_root
from services.kernel.log import Stored

GENESIS = bytes(32)
"""Head of the chain of an empty log."""
NO_ROOT = sha256(b"").hexdigest()
"""`previous_root` of the first segment: the root of no records."""


class SealBroken(ValueError):
    """Records do not give the sealed root, or cannot be sealed."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of records without a hole, sealed."""

    first: int
    last: int
    count: int
    root: str
    previous_root: str


def leaf(subject: str, record: bytes) -> bytes:
    name = subject.encode()
    return len(name).to_bytes(4, "big") + name + record


def link(head: bytes, subject: str, record: bytes) -> bytes:
    """The chain's head after one more record."""
    return sha256(b"\2" + head + sha256(b"\0" + leaf(subject, record)).digest()).digest()


def chain(records: Iterable[Stored], head: bytes = GENESIS) -> bytes:
    """The chain's head after these records."""
    for record in records:
        head = link(head, record.subject, record.data)
    return head


def seal(records: Sequence[Stored], previous_root: str = NO_ROOT) -> Segment:
    """Seals consecutive records. Raises: SealBroken for none, or for a hole in their positions."""
    if not records:
        raise SealBroken("no records to seal")
    first, last = records[0].seq, records[-1].seq
    if [record.seq for record in records] != list(range(first, last + 1)):
        raise SealBroken(f"positions {first} to {last} have a hole or are out of order")
    root = merkle_root([leaf(record.subject, record.data) for record in records])
    return Segment(first, last, len(records), root, previous_root)


def check_segment(segment: Segment, records: Sequence[Stored]) -> None:
    """Raises: SealBroken where these are not the records that were sealed."""
    if (found := seal(records, segment.previous_root)) != segment:
        raise SealBroken(f"sealed {segment}, found {found}")
