"""Chains and segments give the hashes that one gets by hand, and a changed byte breaks them."""

from hashlib import sha256

import pytest

from services.kernel.log import Stored
from services.kernel.seal import GENESIS, NO_ROOT, SealBroken, Segment, chain, check_segment, seal


def record(seq: int, subject: str, data: bytes) -> Stored:
    return Stored(seq, subject, data, 0)


A, B, C = record(1, "r.a", b"one"), record(2, "r.b", b"two"), record(3, "r.c", b"")

LEAF_A = sha256(b"\x00" + b"\x00\x00\x00\x03" + b"r.a" + b"one").digest()
LEAF_B = sha256(b"\x00" + b"\x00\x00\x00\x03" + b"r.b" + b"two").digest()
LEAF_C = sha256(b"\x00" + b"\x00\x00\x00\x03" + b"r.c").digest()
NODE_AB = sha256(b"\x01" + LEAF_A + LEAF_B).digest()
ROOT_ABC = sha256(b"\x01" + NODE_AB + LEAF_C).hexdigest()


def test_the_chain_is_the_one_worked_out_by_hand() -> None:
    after_a = sha256(b"\x02" + bytes(32) + LEAF_A).digest()
    after_b = sha256(b"\x02" + after_a + LEAF_B).digest()

    assert chain([]) == GENESIS == bytes(32)
    assert chain([A, B]) == after_b
    assert chain([B], chain([A])) == after_b


def test_a_segment_has_the_rfc_6962_root_of_its_records() -> None:
    assert NO_ROOT == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert seal([A, B, C]) == Segment(1, 3, 3, ROOT_ABC, NO_ROOT)
    assert seal([B], "ab" * 32) == Segment(2, 2, 1, LEAF_B.hex(), "ab" * 32)


def test_bytes_cannot_wander_between_subject_and_record() -> None:
    one, other = record(1, "r.ab", b"c"), record(1, "r.a", b"bc")
    assert chain([one]) != chain([other])
    assert seal([one]).root != seal([other]).root


@pytest.mark.parametrize(
    "changed",
    [
        [A, record(2, "r.b", b"twO"), C],
        [A, record(2, "r.x", b"two"), C],
        [A, record(2, "r.c", b""), record(3, "r.b", b"two")],
        [A, B],
        [B, C],
    ],
)
def test_a_changed_moved_or_missing_record_breaks_the_seal(changed: list[Stored]) -> None:
    segment = seal([A, B, C])
    check_segment(segment, [A, B, C])
    with pytest.raises(SealBroken):
        check_segment(segment, changed)
    assert chain(changed) != chain([A, B, C])


def test_holes_and_nothing_are_not_sealed() -> None:
    with pytest.raises(SealBroken, match="no records"):
        seal([])
    with pytest.raises(SealBroken, match="positions 1 to 3 have a hole"):
        seal([A, C])
    with pytest.raises(SealBroken, match="out of order"):
        seal([A, C, B])
