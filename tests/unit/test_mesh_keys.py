"""Keys of endpoints reach the services that ask models, and no other."""

from pathlib import Path

import pytest

from services.cli.folder import RunFolder
from services.cli.mesh import Mesh, build
from services.cli.users import Users, clean_environment
from services.kernel.launch import read_options
from services.kernel.nats_server import NatsServer
from services.kernel.runfile import Deployment, RunFile


def test_only_who_asks_models_gets_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    file = RunFile(deployment=Deployment(name="tiny"))
    folder.create(file)
    monkeypatch.setenv("SOME_KEY", "sk-canary")
    mesh = build(folder, file, NatsServer(folder.nats, port=4222), Users(False, "a test"), "host")
    assert keyed(mesh) == set()
    folder.endpoints.write_text(
        '[a]\nurl = "http://x/v1"\nkey_env = "SOME_KEY"\n[b]\nurl = "http://x/v1"\nkey_env = "NONE"\n'
    )
    assert keyed(mesh) == {"proposer", "validator"}
    assert "SOME_KEY" not in clean_environment()
    for service in mesh.services:
        flags = dict(word[2:].split("=", 1) for word in service.command if word.startswith("--") and "=" in word)
        options = read_options({name.replace("-", "_"): value for name, value in flags.items()}, {})
        assert options.endpoints == folder.endpoints


def keyed(mesh: Mesh) -> set[str]:
    return {service.role for service in mesh.services if mesh.keys(service.role) == {"SOME_KEY": "sk-canary"}}
