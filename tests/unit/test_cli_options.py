"""Deployment options of one service: flags over variables over defaults, and nothing unknown."""

from pathlib import Path

import msgspec
import pytest

from services.cli.parser import build_parser
from services.kernel.launch import OptionsError, read_options, variable
from services.kernel.options import ServiceOptions

NEEDED = {
    "ENVWHEEL_RUN": "wheel",
    "ENVWHEEL_NATS_URL": "nats://n:4222",
    "ENVWHEEL_ARTIFACTS": "/a",
    "ENVWHEEL_WORK": "/w",
}


def test_every_option_has_a_flag_and_a_variable() -> None:
    arguments = vars(build_parser().parse_args(["run", "solver"]))
    for field in msgspec.structs.fields(ServiceOptions):
        assert field.name in arguments, field.name
        assert variable(field.name) == f"ENVWHEEL_{field.name.upper()}"


def test_variables_give_all_options() -> None:
    options = read_options({}, NEEDED | {"ENVWHEEL_SLOTS": "3", "ENVWHEEL_ACK_WAIT_S": "1.5", "PATH": "/bin"})
    assert options == ServiceOptions(
        run="wheel", nats_url="nats://n:4222", artifacts=Path("/a"), work=Path("/w"), slots=3, ack_wait_s=1.5
    )


def test_a_docker_engine_is_named_like_any_other_option() -> None:
    more = {"ENVWHEEL_SANDBOX": "docker", "ENVWHEEL_DOCKER_HOST": "unix:///x", "ENVWHEEL_DOCKER_PULL": "true"}
    options = read_options({"docker_build_network": "False"}, NEEDED | more)
    assert (options.sandbox, options.docker_host, options.docker_runtime) == ("docker", "unix:///x", "")
    assert (options.docker_pull, options.docker_build_network) == (True, False)


def test_a_flag_wins_over_a_variable_and_an_empty_one_is_none() -> None:
    options = read_options({"run": "other", "slots": None}, NEEDED | {"ENVWHEEL_SLOTS": ""})
    assert (options.run, options.slots) == ("other", 1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ENVWHEEL_SANDBOX": "podman"}, "podman"),
        ({"ENVWHEEL_SLOT": "3"}, "unknown variable ENVWHEEL_SLOT"),
        ({"ENVWHEEL_SLOTS": "many"}, "slots"),
        ({"ENVWHEEL_SLOTS": "0"}, "--slots is 0: at least 1"),
        ({"ENVWHEEL_ACK_WAIT_S": "nan"}, "--ack-wait-s is nan"),
        ({"ENVWHEEL_WORK": ""}, "--work is missing: give it, or set ENVWHEEL_WORK"),
    ],
)
def test_a_bad_option_is_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        read_options({}, NEEDED | more)
