"""Carries the modules of `inside` into a sandbox: as bytecode where both interpreters agree, else as source."""

import importlib.util
import marshal
import os
from pathlib import Path

MODULES = ("wire", "streams", "usage", "command", "files", "supervisor")
"""In the order of their imports: each needs only those before it."""

BOOTSTRAP = """\
import marshal, posix, sys
from _frozen_importlib_external import MAGIC_NUMBER
bundle, control = map(int, sys.argv[1:])
magic, modules = marshal.loads(posix.pread(bundle, 1 << 22, 0))
posix.close(bundle)
for name, source, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(marshal.loads(code) if magic == MAGIC_NUMBER else compile(source, name, "exec"), module.__dict__)
module.main(control)
"""
"""Argument of `python3 -I -S -B -c`; its arguments are the descriptors of the bundle and of the control socket."""

MARSHAL_VERSION = 2
"""Read by every Python 3; what needs the same interpreter lies inside as bytes."""


def open_bundle() -> int:
    """A sealed in-memory file with the modules; the caller closes it."""
    folder = Path(__file__).parent / "inside"
    modules = []
    for stem in MODULES:
        name, source = f"services.kernel.sandbox.inside.{stem}", (folder / f"{stem}.py").read_bytes()
        modules.append((name, source, marshal.dumps(compile(source, name, "exec", dont_inherit=True))))
    fd = os.memfd_create("supervisor", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(marshal.dumps((importlib.util.MAGIC_NUMBER, modules), MARSHAL_VERSION))
    return fd
