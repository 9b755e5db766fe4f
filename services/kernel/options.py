"""What a service is told at its start: where the log and the artifacts are, and its own folder. No science in here."""

from pathlib import Path
from typing import Literal

import msgspec

SandboxKind = Literal["bubblewrap", "docker"]


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deployment of one replica. Results never depend on any of it."""

    run: str
    nats_url: str
    artifacts: Path
    """Folder shared by all services: content-addressed bytes."""
    work: Path
    """Folder of this replica alone: sandboxes, caches, logs."""
    endpoints: Path | None = None
    """`endpoints.toml`: where models behind endpoints are asked. It need not be there before one is."""
    base: str = "host"
    """`host`, or the folder of a built base."""
    sandbox: SandboxKind = "bubblewrap"
    docker_host: str = ""
    """Where the engine listens; empty: its default place."""
    docker_runtime: str = ""
    """An OCI runtime that the engine knows; empty: its default."""
    docker_build_network: bool = False
    docker_pull: bool = False
    replica: str = "0"
    slots: int = 1
    """Work messages handled at once."""
    in_flight_max: int = 16
    """Unacknowledged work messages over all replicas of the role (trainer: always 1)."""
    ack_wait_s: float = 30.0
    drain_s: float = 3.0
    """How long to finish running work on SIGTERM before it is handed back."""
