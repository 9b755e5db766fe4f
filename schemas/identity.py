"""Identity comes from cause: ids, seeds, orders and the round digest, all from sha256 over canonical JSON."""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

Part = str | int


def event_id(message: str, key: tuple[Part, ...]) -> str:
    """Id of a message: sha256 over its name and logical key, 64 hex digits. No run, host, place or time goes in."""
    return sha256(b"envwheel.id\0" + msgspec.json.encode([message, *key])).hexdigest()


def derive_seed(seed: int, *labels: Part) -> int:
    """A seed in [0, 2**53) for one purpose, from the run's seed and what the purpose is called."""
    digest = sha256(b"envwheel.seed\0" + msgspec.json.encode([seed, *labels])).digest()
    return int.from_bytes(digest[:8], "big") >> 11


def permutation(items: Iterable[str], seed: int, *labels: Part) -> list[str]:
    """`items` in an order that depends on the seed, the labels and the items alone."""
    prefix = b"envwheel.order\0" + msgspec.json.encode([seed, *labels]) + b"\0"
    return sorted(items, key=lambda item: (sha256(prefix + item.encode()).digest(), item))


def digest_of(data: bytes) -> str:
    """sha256 of bytes as 64 hex digits: the name of an artifact."""
    return sha256(data).hexdigest()


def list_digest(digests: Iterable[str]) -> str:
    """Digest of an ordered list of digests (a memory version, a held-out set)."""
    return sha256(b"envwheel.list\0" + msgspec.json.encode(list(digests))).hexdigest()


def merkle_root(leaves: list[bytes]) -> str:
    """RFC 6962 Merkle tree hash of the leaves, as hex. No leaves: sha256 of nothing."""
    if not leaves:
        return sha256(b"").hexdigest()
    level = [sha256(b"\0" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        paired = [sha256(b"\1" + level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    return level[0].hex()


def round_digest(bodies: dict[str, str]) -> str:
    """Merkle root over id and body digest of a round's requests, decisions and facts, in order of ids."""
    return merkle_root([bytes.fromhex(id_) + bytes.fromhex(bodies[id_]) for id_ in sorted(bodies)])
