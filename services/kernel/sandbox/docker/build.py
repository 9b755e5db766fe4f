"""Builds and imports in an engine, by the calls of its API."""

import asyncio
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docker.errors import APIError, DockerException  # type: ignore[import-untyped]
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.options import KIND_LABEL, LABEL, PROCESS_LABEL
from services.kernel.sandbox.docker.reaper import this_process
from services.kernel.sandbox.protocol import SandboxError, SandboxRefusedError

OUTPUT_BYTES_MAX = 256 * 2**10
SOURCE_TIME_S = 1_767_225_600
"""2026-01-01, as in builds without an engine: the time of every file that is sent."""
_STEP = re.compile(r"Step \d+/\d+ : (.*)", re.DOTALL)
_SYNTAX = re.compile(r"dockerfile parse error|unknown instruction|file with no instructions", re.IGNORECASE)


class BuildError(Exception):
    """The engine could not build it, and says why; the fault is in what it was given."""

    def __init__(self, step: str, reason: str, output: bytes = b"", *, is_syntax: bool = False) -> None:
        super().__init__(reason)
        self.step, self.output, self.is_syntax = step, output, is_syntax


@dataclass(frozen=True)
class EngineBuild:
    """One build: the context with a Dockerfile at its top (content and mode by path), and its bounds."""

    context: Mapping[str, tuple[bytes, int]]
    tag: str
    labels: Mapping[str, str]
    memory_bytes_max: int
    wall_s: float
    network: bool = False


async def engine_build(engine: Engine, build: EngineBuild) -> None:
    """Builds and tags. When it is cancelled or takes too long the connection is closed, and the engine gives up.

    Raises:
        BuildError: the Dockerfile's doing, or it met the wall limit.
        SandboxError: the engine failed.
    """
    talk = _Talk(engine)
    working = asyncio.create_task(asyncio.to_thread(talk.run, build))
    try:
        async with asyncio.timeout(build.wall_s):
            await asyncio.shield(working)
    except TimeoutError:
        raise BuildError(talk.step, f"the build took more than {build.wall_s:g} s", talk.output) from None
    finally:
        talk.hang_up()
        await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # told already, or of no interest once given up


class _Talk:
    """The engine's words on one build."""

    def __init__(self, engine: Engine) -> None:
        self._api: Any = engine.client.api
        self._response: Any = None
        self._given_up = False
        self._said = bytearray()
        self.step = ""

    @property
    def output(self) -> bytes:
        return bytes(self._said)

    def run(self, build: EngineBuild) -> None:
        params = {
            "t": build.tag,
            "rm": True,
            "forcerm": True,
            "pull": False,
            "version": "1",
            "memory": build.memory_bytes_max,
            "memswap": build.memory_bytes_max,
            "networkmode": "default" if build.network else "none",
            "labels": json.dumps(dict(build.labels)),
        }
        try:
            self._response = self._api.post(
                self._api._url("/build"),
                data=_tar(build.context),
                params=params,
                headers={"Content-Type": "application/x-tar"},
                stream=True,
                timeout=(60, build.wall_s + 60),
            )
            self._api._raise_for_status(self._response)
            if not self._given_up:
                self._read()
        except APIError as error:
            reason = str(error.explanation or error)
            if error.status_code == 400 or _SYNTAX.search(reason):
                raise BuildError("", reason, is_syntax=True) from error
            raise SandboxError(f"the Docker engine could not build: {error}") from error
        except (DockerException, RequestException, HTTPError, OSError) as error:
            raise SandboxError(f"the Docker engine could not build: {error}") from error
        finally:
            if self._response is not None:
                self._response.close()

    def _read(self) -> None:
        ended = False
        for said in self._api._stream_helper(self._response, decode=True):
            text = str(said.get("stream", ""))
            if match := _STEP.match(text):
                self.step = match[1].strip()
            elif text.strip() and not text.startswith((" ---> ", "Removing intermediate container")):
                self._said += text.encode()
                del self._said[OUTPUT_BYTES_MAX:]
            ended = ended or "Successfully tagged" in text or "Successfully built" in text
            if "error" in said:
                reason = str(said["error"])
                raise BuildError(self.step, reason, self.output, is_syntax=bool(_SYNTAX.search(reason)))
        if not ended and not self._given_up:
            raise SandboxError("the Docker engine's answer to a build ended early")

    def hang_up(self) -> None:
        """Ends the reading from another thread."""
        self._given_up = True
        if self._response is not None:
            with suppress(OSError, ValueError, AttributeError, RuntimeError):
                self._response.raw.shutdown()


def _tar(context: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folder = tarfile.TarInfo("context")
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, SOURCE_TIME_S
        tar.addfile(folder)
        for path, (content, mode) in sorted(context.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mode, member.mtime = len(content), mode, SOURCE_TIME_S
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def import_base(engine: Engine, root: Path, reference: str, base_digest: str) -> None:
    """A root file system becomes an image, owned by root but for the homes of its users. Raises SandboxError."""
    repository, _, tag = reference.rpartition(":")
    labels = {LABEL: "1", KIND_LABEL: "base", f"{LABEL}.base": base_digest}
    changes = [f"LABEL {name}={json.dumps(value)}" for name, value in labels.items()]
    try:
        engine.client.api.import_image_from_stream(
            _root_tar(root), repository=repository, tag=tag, changes=[*changes, "WORKDIR /app"]
        )
    except (DockerException, RequestException, OSError) as error:
        raise SandboxError(f"the Docker engine could not import the base {root}: {error}") from error


def _root_tar(root: Path) -> Iterator[bytes]:
    """The archive in pieces: a base has hundreds of megabytes."""
    buffer, owners = io.BytesIO(), _home_owners(root)
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            member = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
            member.uid, member.gid = owners.get(member.name, (0, 0))
            member.uname = member.gname = ""
            if member.isreg():
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
            if buffer.tell() > 1 << 20:
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
    yield buffer.getvalue()


def _home_owners(root: Path) -> dict[str, tuple[int, int]]:
    lines = [line.split(":") for line in (root / "etc/passwd").read_text().splitlines()]
    homes = [fields for fields in lines if len(fields) == 7 and fields[5].startswith("/home/")]
    return {fields[5].strip("/"): (int(fields[2]), int(fields[3])) for fields in homes}


def path_kind(engine: Engine, image: str, path: str) -> Literal["folder", "other", "absent"]:
    """What an image has at an absolute path; a link is followed once, as the engine tells it. Raises SandboxError."""
    api: Any = engine.client.api
    labels = {LABEL: "1", KIND_LABEL: "look", PROCESS_LABEL: this_process()}
    container = engine.create("", {"Image": image, "Cmd": ["/"], "Labels": labels})
    try:
        response = api.head(api._url("/containers/{0}/archive", container), params={"path": path + "/."}, timeout=60)
        response.close()
    except (DockerException, RequestException) as error:
        raise SandboxError(f"the Docker engine could not look into an image: {error}") from error
    finally:
        engine.remove(container)
    if response.status_code == 404:
        return "absent"
    return "folder" if response.ok else "other"


def pull(engine: Engine, reference: str) -> None:
    """Raises SandboxRefusedError where it cannot be had."""
    try:
        engine.client.images.pull(reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest")
    except (DockerException, RequestException) as error:
        raise SandboxRefusedError(f"cannot pull {reference!r}: {error}") from error
