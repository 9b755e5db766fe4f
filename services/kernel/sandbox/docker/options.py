"""How a Docker backend is set up."""

from dataclasses import dataclass

LABEL = "envwheel"
"""Every container and image that is made here has this label, and those below it that apply."""
OWNER_LABEL = f"{LABEL}.owner"
"""The folder of the process that owns a container."""
PROCESS_LABEL = f"{LABEL}.process"
"""That process, as `reaper.this_process` names it."""
KIND_LABEL = f"{LABEL}.kind"


@dataclass(frozen=True)
class DockerOptions:
    host: str = ""
    """Where the engine listens, as `unix:///run/docker.sock`; empty: DOCKER_HOST, or the engine's default."""
    runtime: str | None = None
    """An OCI runtime that the engine knows, such as `runsc` (gVisor); None is the engine's default."""
    warm_max: int = 2
    """How many started containers may wait for sandboxes of a kind that was asked for before."""
    probe_image: str = "envwheel/base:1"
    """An image with bash, python3 and coreutils, for `self_check`."""
    build_network: bool = False
    """Whether RUN lines of a build reach the network. Sandboxes never do."""
    pull: bool = False
    """Whether an image that is not in the engine may be pulled."""
    labels: tuple[tuple[str, str], ...] = ()
    """More labels for all that is made, such as the run."""
