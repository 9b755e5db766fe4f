"""The few calls of the Docker Engine API that sandboxes need. All of them block: call them on a thread."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import docker  # type: ignore[import-untyped]
from docker.errors import APIError, DockerException, NotFound  # type: ignore[import-untyped]
from requests.exceptions import RequestException

from services.kernel.sandbox.protocol import SandboxError, SandboxRefusedError

TIMEOUT_S = 120
"""For an answer of the engine."""
CONNECTIONS_MAX = 32
DEFAULT_HOST = "unix:///var/run/docker.sock"
CONFLICT = 409
Spec = Mapping[str, Any]


class Engine:
    """A connection to one engine. Use it from several threads.

    Raises:
        SandboxError: from every call, where the engine is not reached or fails.
    """

    def __init__(self, host: str = "") -> None:
        self.host = host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
        options: dict[str, Any] = {"timeout": TIMEOUT_S, "version": "auto", "max_pool_size": CONNECTIONS_MAX}
        try:
            _try_socket(self.host)
            if host:
                self._client = docker.DockerClient(host, **options)
            else:
                self._client = docker.DockerClient.from_env(**options)
        except (DockerException, RequestException, OSError) as error:
            raise SandboxError(
                f"no Docker engine answers at {self.host}: {error}. Start one, name its socket with "
                "DOCKER_HOST=unix:///…, see that this user may use it; or use the sandbox bubblewrap"
            ) from error
        self.client: Any = self._client
        """For builds: everything else of the API."""
        self._api = self._client.api

    def close(self) -> None:
        self._client.close()

    def create(self, name: str, spec: Spec) -> str:
        """The id of a new container. Raises SandboxRefusedError where its image is not there."""
        with _calling("create a container"):
            try:
                return str(self._api.create_container_from_config(dict(spec), name)["Id"])
            except NotFound as error:
                raise SandboxRefusedError(f"no image {spec.get('Image')!r} in the Docker engine: {error}") from error

    def attach(self, container: str) -> "Attached":
        """Standard streams of a container that is not started yet."""
        with _calling("attach to a container"):
            return Attached(self._api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}))

    def start(self, container: str) -> None:
        with _calling("start a container"):
            self._api.start(container)

    def remove(self, container: str) -> None:
        """With all its processes and its anonymous volumes; one that is gone already is no fault."""
        with _calling("remove a container"):
            try:
                self._api.remove_container(container, v=True, force=True)
            except NotFound:
                return
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                self._api.wait(container, condition="removed")  # another removal is under way

    def inspect(self, container: str) -> dict[str, Any]:
        with _calling("look at a container"):
            return dict(self._api.inspect_container(container))

    def written_bytes(self, container: str) -> int:
        """What the container wrote, as the engine counts it."""
        with _calling("measure a container"):
            url = self._api._url("/containers/{0}/json", container)
            return int(self._api._result(self._api._get(url, params={"size": 1}), True).get("SizeRw") or 0)

    def inspect_image(self, reference: str) -> dict[str, Any]:
        """Raises SandboxRefusedError where there is none of that name."""
        with _calling("look at an image"):
            try:
                return dict(self._api.inspect_image(reference))
            except NotFound as error:
                raise SandboxRefusedError(
                    f"no image {reference!r} in the Docker engine at {self.host}: `docker pull` or build it first"
                ) from error

    def export(self, container: str) -> Iterator[bytes]:
        """The whole tree of a container as a tar archive."""
        with _calling("export a container"):
            yield from self._api.export(container, chunk_size=1 << 20)

    def containers(self, label: str) -> list[dict[str, Any]]:
        """Running or not: `Id`, `Labels` and more of each."""
        with _calling("list containers"):
            return list(self._api.containers(all=True, filters={"label": label}))


class Attached:
    """A socket to a container's standard streams. What comes from it is in packets: eight bytes of header, and data."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        """Keeps the answer of the engine alive, whose socket this is."""
        self.socket: socket.socket = getattr(stream, "_sock", stream)

    def close(self) -> None:
        response = getattr(self._stream, "_response", None)
        if response is not None:
            response.close()
        self._stream.close()
        self.socket.close()


def _try_socket(host: str) -> None:
    """The package leaves an open socket behind where it cannot connect."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(host.removeprefix("unix://"))


@contextmanager
def _calling(what: str) -> Iterator[None]:
    try:
        yield
    except (DockerException, RequestException) as error:
        raise SandboxError(f"the Docker engine could not {what}: {error}") from error
