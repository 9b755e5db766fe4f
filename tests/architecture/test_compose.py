"""compose.yaml: Compose takes it where it is installed; always, its services, commands and variables are ours."""

import shutil
import subprocess
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]  # no stubs among the pinned packages

from schemas.outcomes import Role
from services.cli.parser import build_parser
from services.cli.profiles import profile_text
from services.kernel.launch import read_options, variable
from services.kernel.options import ServiceOptions
from services.kernel.runfile import read_runfile
from tests.support.tree import ROOT

ROLES = {role.value for role in Role}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return loaded


def test_every_role_is_a_service_and_runs_itself(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == ROLES | {"nats"}
    for role in ROLES:
        arguments = build_parser().parse_args(services[role]["command"])
        assert arguments.service == role
        assert arguments.does == "service:run"


def test_every_service_gets_all_options_that_it_needs(compose: dict[str, Any]) -> None:
    for role in ROLES:
        environment = compose["services"][role]["environment"]
        options = read_options({}, environment)
        assert options.nats_url == "nats://nats:4222"
        assert str(options.artifacts) == "/artifacts"
        assert set(environment) <= {variable(field.name) for field in msgspec.structs.fields(ServiceOptions)}


def test_services_have_users_of_their_own_and_share_only_the_store(compose: dict[str, Any]) -> None:
    users = [compose["services"][role]["user"] for role in ROLES]
    assert len(set(users)) == len(users)
    shared = {volume.split(":")[0] for role in ROLES for volume in compose["services"][role]["volumes"]}
    assert shared == {"artifacts", "observer"}
    assert "artifacts" not in str(compose["services"]["nats"]["volumes"])


def test_only_who_makes_sandboxes_may_make_namespaces(compose: dict[str, Any]) -> None:
    loose = {role for role in ROLES if "seccomp=unconfined" in compose["services"][role]["security_opt"]}
    assert loose == {"proposer", "validator", "solver"}
    assert all(compose["services"][role]["cap_drop"] == ["ALL"] for role in ROLES)
    assert not any("privileged" in service for service in compose["services"].values())


def test_the_server_is_on_disk_before_it_acknowledges_and_healthy_before_others_start(compose: dict[str, Any]) -> None:
    assert "sync_interval: always" in compose["configs"]["nats"]["content"]
    assert "healthz" in " ".join(compose["services"]["nats"]["healthcheck"]["test"])
    for role in ROLES:
        assert compose["services"][role]["depends_on"]["nats"]["condition"] == "service_healthy"


def test_the_run_that_it_begins_is_a_run_file(compose: dict[str, Any]) -> None:
    file = read_runfile(compose["configs"]["run"]["content"], where="compose.yaml", profile=profile_text)
    assert file.science.profile == "demo"


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="Docker Compose is not installed",
)
def test_compose_takes_it() -> None:
    subprocess.run(["docker", "compose", "config", "--quiet"], cwd=ROOT, check=True)
