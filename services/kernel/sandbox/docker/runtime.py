"""What runs PID 1 in a container: the interpreter that runs us, with the modules and libraries that it needs there.

Images bring no python3, or one that somebody else chose; this one is shown read-only in every container. It is started
through its own loader, whose copy here looks for no /etc/ld.so.preload, so that nothing of an image gets into it.
"""

import ast
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

from services.kernel.sandbox.bundle import BOOTSTRAP, bundle_bytes
from services.kernel.sandbox.protocol import SandboxError
from services.kernel.sandbox.seccomp import system_call_filter

INSIDE = "/dev/envwheel"
"""Where a container shows it: /dev is a file system of its own, so that no image and no snapshot has it."""
PRELOAD, NO_PRELOAD = b"/etc/ld.so.preload\0", b"/dev/envwheel/none\0"
WHAT_IS_LOADED = """
import sys
for name in ("_signal", "ctypes", "fcntl", "os", "resource", "select", "time"):
    __import__(name)
import os
files = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line}
print([os.path.dirname(os.__file__), sys.platlibdir, os.path.realpath("/proc/self/exe"), files, sorted(mapped)])
"""
"""Run by the interpreter that is to be carried, with all imported that PID 1 needs."""
COMMAND = (
    f"{INSIDE}/ld.so", "--inhibit-cache", "--library-path", f"{INSIDE}/so", f"{INSIDE}/bin/python3",
    *("-I", "-S", "-B", "-c", BOOTSTRAP, f"{INSIDE}/bundle"),
)  # fmt: skip
"""To be followed by the arguments of `inside.supervisor.main`."""


def assemble(folder: Path) -> None:
    """Make the missing `folder`, about 30 MB.

    Raises:
        SandboxError: this interpreter cannot be carried (it needs glibc's loader).
    """
    stdlib, platlibdir, program, files, mapped = _loaded()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = folder / platlibdir / name
    (target / "lib-dynload").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "so").mkdir()
    shutil.copy(program, folder / "bin/python3")
    for file in map(Path, {*files, os.path.join(stdlib, "os.py")}):  # noqa: PTH118
        if file.is_relative_to(stdlib):
            _copy_module(file, target / file.relative_to(stdlib))
    loader = None
    for library in map(Path, mapped):
        if library.name.startswith("ld-linux"):
            loader = library
        elif ".so" in library.name and not library.is_relative_to(stdlib):
            _copy_library(library, folder / "so")
    if loader is None:
        raise SandboxError(f"{program} has no loader of glibc: the Docker backend needs a Python linked to glibc")
    (folder / "ld.so").write_bytes(loader.read_bytes().replace(PRELOAD, NO_PRELOAD))
    (folder / "ld.so").chmod(0o755)
    (folder / "bundle").write_bytes(bundle_bytes(system_call_filter()))


def _loaded() -> tuple[str, str, str, list[str], list[str]]:
    argv = [sys.executable, "-I", "-S", "-B", "-c", WHAT_IS_LOADED]
    try:
        said = subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout  # noqa: S603
        stdlib, platlibdir, program, files, mapped = ast.literal_eval(said.decode())
    except (OSError, subprocess.SubprocessError, ValueError, SyntaxError) as error:
        raise SandboxError(f"{sys.executable} does not say what it has loaded: {error}") from error
    return stdlib, platlibdir, program, files, mapped


def _copy_library(source: Path, folder: Path) -> None:
    """Under its own name and every shorter one: which of them it is asked for by, only it knows."""
    shutil.copy(source, folder / source.name)
    stem, dot, version = source.name.partition(".so.")
    while dot:
        version, dot, _ = version.rpartition(".")
        name = f"{stem}.so.{version}".rstrip(".")
        if not (folder / name).exists():
            (folder / name).symlink_to(source.name)


def _copy_module(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    if source.suffix == ".py":
        py_compile.compile(
            os.fspath(target), dfile=target.name, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
