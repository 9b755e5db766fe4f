"""The system-call filter, run on a small BPF machine."""

import errno
import struct

import pytest

from services.kernel.sandbox.seccomp import ALLOW, ARCHITECTURES, ERRNO, system_call_filter

EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
CLONE_NEWUSER, CLONE_THREAD, SIGCHLD = 0x10000000, 0x00010000, 17


def decide(program: bytes, audit: int, number: int, first: int = 0, second: int = 0) -> int:
    data = struct.pack("=IIQ6Q", number, audit, 0, first, second, 0, 0, 0, 0)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at = value = 0
    while True:
        code, if_true, if_false, operand = instructions[at]
        at += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        else:
            met = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += if_true if met else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_makes_namespaces_mounts_or_hidden_memory_is_refused_and_the_rest_allowed(machine: str) -> None:
    arch, program = ARCHITECTURES[machine], system_call_filter(machine)
    expected: dict[tuple[int, ...], int] = {
        (arch.clone, SIGCHLD): ALLOW,
        (arch.clone, CLONE_THREAD): ALLOW,
        (arch.clone, CLONE_NEWUSER | SIGCHLD): EPERM,
        **{(number, 0, 7): ALLOW for number in arch.only_oneself},
        **{(number, 1, 0): EPERM for number in arch.only_oneself},
        (arch.setpriority, 0, 0): ALLOW,
        (arch.setpriority, 0, 1): EPERM,
        (arch.setpriority, 2, 0): EPERM,
        (arch.memfd_create, 0): ENOSYS,
        (425, 0): ENOSYS,
        (435, 0): ENOSYS,
        (429, 0): EPERM,
        (434, 0): ALLOW,
        (1000, 0): ALLOW,
        **{(number, 0): EPERM for number in arch.eperm},
    }
    assert {call: decide(program, arch.audit, *call) for call in expected} == expected


def test_calls_of_another_architecture_or_of_x32_are_refused() -> None:
    program = system_call_filter("x86_64")
    assert decide(program, 0x40000003, 1) == ENOSYS
    assert decide(program, ARCHITECTURES["x86_64"].audit, 0x40000001) == ENOSYS
    assert decide(program, ARCHITECTURES["x86_64"].audit, 1) == ALLOW


def test_an_unknown_machine_has_no_filter() -> None:
    assert system_call_filter("riscv64") == b""
