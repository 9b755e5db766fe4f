"""What an image of a task is made from, and what every builder of images offers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from services.kernel.archive import FileEntry
from services.kernel.harbor.config import Environment
from services.kernel.harbor.task import HarborTask, limits_of
from services.kernel.sandbox.protocol import Image, Limits

BASE_NAMES = ("envwheel/base:1",)
"""What a Dockerfile may say in FROM for the base, whatever the installation calls its own."""


class BuildFailedError(Exception):
    """The task's own build does not succeed; trying again changes nothing."""

    def __init__(self, step: str, reason: str, output: bytes = b"") -> None:
        super().__init__(f"{step}: {reason}")
        self.output = output


class UnavailableError(Exception):
    """The task is legal, but this installation lacks what it needs; the message says what, and what to do.

    It says nothing about the task: another installation can build it.
    """


class NetworkWantedError(BuildFailedError, UnavailableError):
    """A step failed that looks like one that wants the network, which builds have not."""

    def __init__(self, step: str, reason: str, output: bytes = b"") -> None:
        super().__init__(
            step,
            f"{reason}; the build asks for the network, and has none: build it beforehand and name the result as "
            "docker_image, or allow it on the docker backend with build_network",
            output,
        )


WANTS_NETWORK = re.compile(
    r"\b(apt-get|apt|apk|dnf|yum|curl|wget|pip3?|uv|npm|yarn|pnpm|cargo|gem|conda|go (get|install|mod)|git clone)\b"
)


@dataclass(frozen=True)
class Recipe:
    """One image: the build context, the table of task.toml that configures it, and the bounds of its build."""

    context: Mapping[str, FileEntry]
    environment: Environment
    limits: Limits


class ImageBuilder(Protocol):
    """Makes the images that sandboxes of one backend start from; what was made before is found again."""

    async def build(self, task: HarborTask, *, verifier: bool = False) -> Image:
        """The image that the agent's sandboxes start from, or with `verifier` that of a separate verifier.

        Raises:
            DockerfileError: no engine could build this.
            BuildFailedError: a step of the build fails or meets a limit.
            UnavailableError: it cannot be built here; the message says what to do.
            SandboxError: infrastructure.
        """
        ...

    async def close(self) -> None: ...


def recipe_of(task: HarborTask, *, verifier: bool = False) -> Recipe:
    """Of the agent's image; or of a separate verifier's: what tests/ or [verifier.environment] say, else the
    environment anew.
    """
    own = task.config.environment
    if not verifier:
        return Recipe(task.part("environment"), own, task.build_limits)
    environment = task.verifier_environment
    limits = limits_of(environment, environment.build_timeout_sec)
    if not task.has_verifier_image:
        configured = structs.replace(environment, docker_image=own.docker_image)
        return Recipe(task.part("environment"), configured, limits)
    context = task.part("tests")
    return Recipe(context if "Dockerfile" in context else {}, environment, limits)
