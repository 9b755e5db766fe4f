"""The system-call filter of a sandbox, as a classic BPF program for `bwrap --seccomp`.

Refused with EPERM: new namespaces and mounts, kernel keys, BPF, perf, userfaultfd, the kernel log, another process'
rlimits. Refused with ENOSYS, so that programs fall back: clone3 (its flags cannot be read here), io_uring, memfd_create
(memory that no process shows). Numbers and structures: linux/filter.h, linux/seccomp.h, asm/unistd_64.h,
asm-generic/unistd.h.
"""

import errno
import platform
import struct
from dataclasses import dataclass

LOAD, JUMP_EQ, JUMP_GE, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NR_OFFSET, ARCH_OFFSET, ARG0_OFFSET, ARG1_OFFSET = 0, 4, 16, 24
NEW_NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}."""
X32_BIT = 0x40000000
SHARED_NUMBERS_EPERM = (428, 429, 430, 431, 432, 433, 442)
"""open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr: the same on every architecture."""
SHARED_NUMBERS_ENOSYS = (425, 435, 447)
"""io_uring_setup, clone3, memfd_secret."""


@dataclass(frozen=True)
class Architecture:
    audit: int
    eperm: tuple[int, ...]
    """unshare, setns, mount, umount2, pivot_root, keyctl, add_key, request_key, bpf, perf_event_open, userfaultfd,
    syslog.
    """
    only_oneself: tuple[int, ...]
    """prlimit64, sched_setscheduler, sched_setparam, sched_setattr: refused unless the first argument, a pid, is 0."""
    setpriority: int
    """Its first two arguments are a kind, 0 for a process, and an id."""
    memfd_create: int
    clone: int


ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000003E, (272, 308, 165, 166, 155, 250, 248, 249, 321, 298, 323, 103), (302, 144, 142, 314), 141, 319, 56
    ),
    "aarch64": Architecture(
        0xC00000B7, (97, 268, 40, 39, 41, 219, 217, 218, 280, 241, 282, 116), (261, 119, 118, 274), 140, 279, 220
    ),
}


def instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def refuse(number: int, error: int) -> list[bytes]:
    return [instruction(JUMP_EQ, number, 0, 1), instruction(RETURN, ERRNO | error)]


def allow_if_zero(number: int, *argument_offsets: int) -> list[bytes]:
    """Refuse the call unless these arguments are 0."""
    tests: list[bytes] = []
    for left, offset in zip(range(len(argument_offsets) - 1, -1, -1), argument_offsets, strict=True):
        tests += [instruction(LOAD, offset), instruction(JUMP_EQ, 0, 0 if left else 1, 2 * left)]
    ends = [instruction(RETURN, ERRNO | errno.EPERM), instruction(RETURN, ALLOW)]
    return [instruction(JUMP_EQ, number, 0, len(tests) + len(ends)), *tests, *ends]


def system_call_filter(machine: str | None = None) -> bytes:
    """The program for this machine; empty where its numbers are not known here (`self_check` then says so)."""
    arch = ARCHITECTURES.get(machine or platform.machine())
    if arch is None:
        return b""
    program = [
        instruction(LOAD, ARCH_OFFSET),
        instruction(JUMP_EQ, arch.audit, 1, 0),
        instruction(RETURN, ERRNO | errno.ENOSYS),
        instruction(LOAD, NR_OFFSET),
        instruction(JUMP_GE, X32_BIT, 0, 1),
        instruction(RETURN, ERRNO | errno.ENOSYS),
    ]
    for number in arch.eperm + SHARED_NUMBERS_EPERM:
        program += refuse(number, errno.EPERM)
    for number in (arch.memfd_create, *SHARED_NUMBERS_ENOSYS):
        program += refuse(number, errno.ENOSYS)
    # Of PID 1 these would let an agent end or starve the supervisor and call it bad luck.
    for number in arch.only_oneself:
        program += allow_if_zero(number, ARG0_OFFSET)
    program += allow_if_zero(arch.setpriority, ARG0_OFFSET, ARG1_OFFSET)
    program += [
        instruction(JUMP_EQ, arch.clone, 0, 3),
        instruction(LOAD, ARG0_OFFSET),
        instruction(JUMP_ANY_BIT, NEW_NAMESPACE_FLAGS, 0, 1),
        instruction(RETURN, ERRNO | errno.EPERM),
        instruction(RETURN, ALLOW),
    ]
    return b"".join(program)
