"""Carries the modules of `inside` into a sandbox: as bytecode where both interpreters agree, else as source."""

import importlib.util
import marshal
import os
from pathlib import Path

MODULES = ("wire", "streams", "usage", "command", "files", "restore", "links", "changes", "supervisor")
"""In the order of their imports: each needs only those before it."""

BOOTSTRAP = """\
import marshal, posix, sys
from _frozen_importlib_external import MAGIC_NUMBER
bundle, *arguments = sys.argv[1:]
bundle = int(bundle) if bundle.isdigit() else posix.open(bundle, posix.O_RDONLY)
magic, modules, program = marshal.loads(posix.pread(bundle, 1 << 22, 0))
posix.close(bundle)
for name, source, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(marshal.loads(code) if magic == MAGIC_NUMBER else compile(source, name, "exec"), module.__dict__)
module.main(*map(int, arguments), program)
"""
"""Argument of `python3 -I -S -B -c`; its arguments are the bundle (a descriptor or a path) and the numbers that
`inside.supervisor.main` takes.
"""

MARSHAL_VERSION = 2
"""Read by every Python 3; what needs the same interpreter lies inside as bytes."""


def bundle_bytes(program: bytes = b"") -> bytes:
    """The modules, with a system-call filter that PID 1 sets itself where nobody did before."""
    folder = Path(__file__).parent / "inside"
    modules = []
    for stem in MODULES:
        name, source = f"services.kernel.sandbox.inside.{stem}", (folder / f"{stem}.py").read_bytes()
        modules.append((name, source, marshal.dumps(compile(source, name, "exec", dont_inherit=True))))
    return marshal.dumps((importlib.util.MAGIC_NUMBER, modules, program), MARSHAL_VERSION)


def open_bundle() -> int:
    """An in-memory file with the modules; the caller closes it."""
    fd = os.memfd_create("supervisor", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(bundle_bytes())
    return fd
