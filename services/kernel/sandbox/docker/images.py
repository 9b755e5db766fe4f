"""What there is to know of an engine's image before a sandbox starts from it, and its files."""

import platform
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, cast

from services.kernel.sandbox.launch import FAKETIME
from services.kernel.sandbox.protocol import Image, ImageFile, Sandbox, SandboxError, SandboxRefusedError

PASSWD_BYTES_MAX = 1 << 20
FAKETIME_BYTES_MAX = 4 << 20
ENGINES_OWN = ("/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/console")
"""What the engine puts into every container in place of the image's."""
FAKETIME_FOLDERS = (f"lib/{platform.machine()}-linux-gnu", "lib64", "lib", "local/lib")


def described_image(found: dict[str, Any]) -> Image:
    """From the engine's description, as user 0."""
    config = found["Config"] or {}
    return Image(
        digest=found["Id"].removeprefix("sha256:"),
        lowers=(),
        workdir=config.get("WorkingDir") or "/",
        env=tuple((name, value) for name, _, value in (entry.partition("=") for entry in config.get("Env") or ())),
        user=config.get("User") or "root",
        engine_id=found["Id"],
    )


async def look_inside(image: Image, sandbox: Sandbox) -> Image:
    """With what its files say; `sandbox` is a fresh one."""
    passwd, faketime = "", None
    with suppress(FileNotFoundError, SandboxRefusedError):
        passwd = (await sandbox.get("/etc/passwd", bytes_max=PASSWD_BYTES_MAX)).decode(errors="replace")
    for place in (f"/usr/{folder}/faketime/{FAKETIME}" for folder in FAKETIME_FOLDERS):
        with suppress(FileNotFoundError, SandboxRefusedError):
            await sandbox.get(place, bytes_max=FAKETIME_BYTES_MAX)
            faketime = faketime or place
    return replace(image, passwd=passwd, faketime=faketime)


class Chunks:
    """A file to read over chunks as they come."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, b""

    def read(self, size: int) -> bytes:
        while len(self._left) < size and (chunk := next(self._chunks, b"")):
            self._left += chunk
        data, self._left = self._left[:size], self._left[size:]
        return data


def exported_files(chunks: Iterator[bytes]) -> Iterator[ImageFile]:
    """The regular files of a tar archive of a container, those of the engine left out. It is read and never unpacked.

    Raises:
        SandboxError: the archive ends early.
    """
    try:
        with tarfile.open(fileobj=cast(BinaryIO, Chunks(chunks)), mode="r|", bufsize=1 << 20) as tar:
            for member in tar:
                path = "/" + member.name.strip("/")
                if member.isreg() and path not in ENGINES_OWN:
                    yield ImageFile(path, member.size, partial(_content, tar, member))
    except (tarfile.TarError, EOFError) as error:
        raise SandboxError(f"the engine's export of the image cannot be read: {error}") from error


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    file = tar.extractfile(member)
    if file is None:
        raise SandboxError(f"{member.name!r} has no content in the engine's export")
    return cast(BinaryIO, file)
