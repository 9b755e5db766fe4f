"""Files of a sandbox, for every backend: in and out, snapshots, trusted starts, mounts."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.kernel.sandbox.protocol import (
    Mount,
    Sandbox,
    SandboxError,
    SandboxRefusedError,
    SnapshotId,
)
from tests.support.sandboxes import BACKENDS, Rig, open_rig

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=BACKENDS, scope="module", loop_scope="module")
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    base = tmp_path_factory.getbasetemp() / "sandbox-base"
    async with open_rig(request.param, tmp_path_factory.mktemp(request.param), base) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def rig(shared: Rig) -> AsyncIterator[Rig]:
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(rig: Rig) -> Sandbox:
    return await rig.start()


def odd_tree(tree: Path, contents: dict[str, bytes]) -> Path:
    for name, data in {**contents, "\udcff\udcfe": b"odd"}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    (tree / "crlf.sh").chmod(0o751)
    (tree / "link").symlink_to("/etc/passwd")
    (tree / "closed").chmod(0o555)
    return tree


async def test_files_go_in_and_out_byte_for_byte_with_their_modes(sandbox: Sandbox, tmp_path: Path) -> None:
    contents = {"all": bytes(range(256)), "crlf.sh": b"#!/bin/sh\r\n", "sub dir/new\nline": b"x", "closed/in": b"y"}
    tree = odd_tree(tmp_path / "tree", contents)
    await sandbox.put(tree, "/tests")
    for name, data in contents.items():
        assert await sandbox.get(f"/tests/{name}", bytes_max=1000) == data
    assert await sandbox.get("/tests/\udcff\udcfe", bytes_max=3) == b"odd"
    shown = (
        await sandbox.exec("stat -c %a /tests/crlf.sh /tests/closed; readlink /tests/link; ls /tests | wc -l")
    ).output
    assert shown.split() == [b"751", b"555", b"/etc/passwd", b"6"]
    (tree / "closed").chmod(0o755)


async def test_a_large_file_survives_the_way_in_and_out(sandbox: Sandbox, tmp_path: Path) -> None:
    data = os.urandom(5_000_001)
    (tmp_path / "big").write_bytes(data)
    await sandbox.put(tmp_path / "big", "/deep/er/big")
    assert await sandbox.get("/deep/er/big", bytes_max=len(data)) == data
    with pytest.raises(SandboxRefusedError, match="5000001"):
        await sandbox.get("/deep/er/big", bytes_max=len(data) - 1)


async def test_put_into_the_root_merges_and_a_file_replaces_a_file(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "tree/app").mkdir(parents=True)
    (tmp_path / "tree/app/a").write_text("new")
    await sandbox.exec("echo old > /app/a; echo b > /app/b")
    await sandbox.put(tmp_path / "tree", "/")
    assert (await sandbox.exec("cat /app/a /app/b")).output == b"newb\n"


async def test_a_missing_file_is_told_apart_from_a_bad_one(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir d; mkfifo p; ln -s /etc/passwd l; ln -s d ld; echo x > d/f; ln -s nowhere dangling")
    for path in ("/app/none", "/none/none"):
        with pytest.raises(FileNotFoundError):
            await sandbox.get(path, bytes_max=10)
    for path in (
        "/app/d",
        "/app/p",
        "/app/l",
        "/app/ld/f",
        "/app/dangling",
        "/dev/zero",
        "/app/d/f/g",
        "app/f",
        "/app/../etc/passwd",
    ):
        with pytest.raises(SandboxRefusedError):
            await sandbox.get(path, bytes_max=10)
    assert await sandbox.get("/app/d/f", bytes_max=2) == b"x\n"


async def test_a_tree_is_its_regular_files_and_no_link_is_followed(sandbox: Sandbox) -> None:
    await sandbox.exec(
        "mkdir -p t/a/b t/empty; echo 1 > t/x; echo 2 > t/a/b/y; chmod 755 t/x; : > t/a/none; ln -s x t/link; "
        "ln -s /etc t/etc; mkfifo t/p; echo 3 > $'t/new\nline'; echo 4 > $'t/\\xff'; ln -s t tl; echo 5 > t/a.b"
    )
    tree = await sandbox.get_tree("/app/t", files_max=6, bytes_max=100)
    contents = {"x": b"1\n", "a/b/y": b"2\n", "a/none": b"", "new\nline": b"3\n", "\udcff": b"4\n", "a.b": b"5\n"}
    assert {path: entry.content for path, entry in tree.items()} == contents
    assert [path for path, entry in tree.items() if entry.executable] == ["x"]
    assert await sandbox.get_tree("/app/t/empty", files_max=1, bytes_max=1) == {}


async def test_a_tree_that_is_too_large_or_no_folder_is_refused(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir t; printf 12345 > t/ab; printf 1 > t/c; ln -s t link; mkfifo p")
    exact = await sandbox.get_tree("/app/t", files_max=2, bytes_max=9)
    assert sorted(exact) == ["ab", "c"]
    for files_max, bytes_max in ((1, 9), (2, 8)):
        with pytest.raises(SandboxRefusedError):
            await sandbox.get_tree("/app/t", files_max=files_max, bytes_max=bytes_max)
    for path in ("/app/link", "/app/t/c", "/app/p", "/app/link/x", "app/t", "/app/../app/t"):
        with pytest.raises(SandboxRefusedError):
            await sandbox.get_tree(path, files_max=9, bytes_max=99)
    with pytest.raises(FileNotFoundError):
        await sandbox.get_tree("/app/none", files_max=9, bytes_max=99)
    deep = "import os\nfor _ in range({}): os.mkdir('d'); os.chdir('d')\nopen('f', 'w')"
    await sandbox.exec(("python3", "-c", deep.format(100)), cwd="/app/t")
    assert len(await sandbox.get_tree("/app/t", files_max=3, bytes_max=999)) == 3
    await sandbox.exec("rm -r d", cwd="/app/t")
    await sandbox.exec(("python3", "-c", deep.format(101)), cwd="/app/t")
    with pytest.raises(SandboxRefusedError, match="100 folders"):
        await sandbox.get_tree("/app/t", files_max=3, bytes_max=999)


async def test_an_images_files_are_what_its_sandboxes_show(rig: Rig, sandbox: Sandbox) -> None:
    seen = await sandbox.exec("find /etc /home /opt /srv -type f -printf '%p\\0%s\\0'")
    fields = seen.output.decode().split("\0")[:-1]
    shown = {path: int(size) for path, size in zip(fields[::2], fields[1::2], strict=True)}

    def go_through() -> dict[str, int]:
        found = {}
        for file in rig.backend.image_files(rig.image):
            with file.open() as content:
                assert len(content.read()) == file.size
            found[file.path] = file.size
        return found

    found = await asyncio.to_thread(go_through)
    folders = ("/etc/", "/home/", "/opt/", "/srv/")
    engines = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
    compared = {path: size for path, size in found.items() if path.startswith(folders) and path not in engines}
    assert compared == {path: size for path, size in shown.items() if path not in engines}
    assert "/etc/passwd" in found


async def test_a_snapshot_is_what_later_sandboxes_start_from(rig: Rig, sandbox: Sandbox) -> None:
    await sandbox.exec(
        "echo 1 > a; mkdir d; chmod 700 d; rm -r /home/agent; rm /etc/hosts; rm -r /var/tmp; mkdir /var/tmp"
    )
    await sandbox.exec("sleep 100 & echo 2 > /tmp/t")
    snapshot = await sandbox.snapshot()
    await sandbox.close()
    look = "cat /app/a /tmp/t; stat -c %a /app/d; ls /home; cat /etc/hosts; pgrep sleep; ls /var"
    first, second = await rig.start(snapshot=snapshot), await rig.start(snapshot=snapshot)
    seen = (await first.exec(look)).output
    assert seen.startswith(b"1\n2\n700\ncat: /etc/hosts: No such file")
    assert b"tmp" in seen
    await first.exec("echo changed > a; rm -r /app/d")
    assert (await second.exec(look)).output == seen
    later = await first.snapshot()
    third = await rig.start(snapshot=later)
    assert (
        await third.exec("cat a; ls -d d; cat /tmp/t")
    ).output == b"changed\nls: cannot access 'd': No such file or directory\n2\n"
    with pytest.raises(SandboxError):
        await first.exec("true")


async def test_a_dropped_or_unknown_snapshot_is_refused(rig: Rig, sandbox: Sandbox) -> None:
    await sandbox.exec("echo 1 > a")
    snapshot = await sandbox.snapshot()
    user = await rig.start(snapshot=snapshot)
    await rig.backend.drop(snapshot)
    await rig.backend.drop(snapshot)
    assert (await user.exec("cat a")).output == b"1\n"
    for unknown in (snapshot, SnapshotId("never")):
        with pytest.raises(SandboxRefusedError):
            await rig.start(snapshot=unknown)


async def test_a_trusted_start_runs_the_images_programs_and_shows_the_agents_files(rig: Rig, sandbox: Sandbox) -> None:
    planted = """
    echo work > /app/result; echo conf > /etc/app.conf
    mkdir /evil; printf '#!/bin/sh\\necho evil\\n' > /evil/cat; chmod +x /evil/cat
    rm /bin; mkdir /bin; ln -s /usr/bin/* /bin/; rm /bin/cat /bin/bash; cp /evil/cat /bin/cat; cp /evil/cat /bin/bash
    echo /evil/lib.so > /etc/ld.so.preload; rm -f /etc/ld.so.cache
    rm -rf /etc/alternatives; ln -s /evil /etc/alternatives
    mkdir -p /root/.local/lib/python3.11/site-packages /etc/python3.11
    echo 'print("evil")' > /etc/python3.11/sitecustomize.py
    cp /etc/python3.11/sitecustomize.py /root/.local/lib/python3.11/site-packages/usercustomize.py
    """
    assert b"evil" in (await sandbox.exec(planted + "cat /app/result; ls /evil")).output
    snapshot = await sandbox.snapshot()
    trusted = await rig.start(snapshot=snapshot, trusted_system=True)
    result = await trusted.exec(
        "/bin/cat /app/result /etc/app.conf; python3 -c 'print(1)'; ls /etc/ld.so.preload; awk 'BEGIN {print 2}'"
    )
    assert result.output == b"work\nconf\n1\nls: cannot access '/etc/ld.so.preload': No such file or directory\n2\n"


@pytest.mark.parametrize("trusted_system", [False, True])
async def test_a_start_from_a_snapshot_keeps_what_kind_each_file_is(
    rig: Rig, sandbox: Sandbox, trusted_system: bool
) -> None:
    made = """
    mkdir -p d/closed; echo same > d/one; ln d/one d/two; truncate -s 8M d/hole; printf end >> d/hole; mkfifo d/pipe
    printf '#!/bin/sh\\necho ran\\n' > d/run; chmod 4755 d/run; ln -s /nowhere d/link; : > d/empty
    echo x > $'d/\\xff\\n'
    touch -d @1000000000.5 d/one; echo deep > d/closed/f; chmod 000 d/closed; touch -d @1100000000 d
    rm -r /home/agent; echo now a file > /home/agent; rm /etc/shells; mkdir /etc/shells; echo in > /etc/shells/f
    mkdir /var/empty; rm -r /var/log; mkdir /var/log; ln -s /app /srv/link; rm -r /opt; ln -s /app /opt
    """
    assert (await sandbox.exec(made)).exit_code == 0
    look = (
        "cd /app/d; stat -c '%n %a %h %Y' one two hole run . ; stat -c %F pipe link closed; cat closed/f; ./run; "
        "ls -A . | od -c | tail -3; test one -ef two && echo hard; "
        "test $(du -k hole | cut -f1) -lt 1000 && echo sparse; tail -c 3 hole; "
        "cat /home/agent /etc/shells/f; stat -c '%F %N' /var/empty /var/log /srv/link /opt; "
        "ls -A /var/log"
    )
    before = (await sandbox.exec(look)).output
    assert before.splitlines()[1] == b"two 644 2 1000000000"
    assert b"hard\nsparse\nend" in before
    snapshot = await sandbox.snapshot()
    again = await rig.start(snapshot=snapshot, trusted_system=trusted_system)
    assert (await again.exec(look)).output == before


async def test_a_link_on_the_way_to_a_system_file_is_left_out_of_a_trusted_start(rig: Rig, sandbox: Sandbox) -> None:
    await sandbox.exec(
        "mkdir /evil; touch /evil/openssl.cnf; echo kept > /app/f; rm -rf /etc/ssl; ln -s /evil /etc/ssl"
    )
    snapshot = await sandbox.snapshot()
    look = "ls /etc/ssl/openssl.cnf; test -L /etc/ssl && echo link; cat /app/f"
    assert b"link\nkept\n" in (await (await rig.start(snapshot=snapshot)).exec(look)).output
    trusted = await rig.start(snapshot=snapshot, trusted_system=True)
    untouched = await rig.start()
    await untouched.exec("echo kept > /app/f")
    assert (await trusted.exec(look)).output == (await untouched.exec(look)).output


async def test_links_into_what_a_verifier_reads_are_left_out_of_a_trusted_start(rig: Rig, sandbox: Sandbox) -> None:
    await sandbox.exec(
        """mkdir -p d/closed; echo kept > d/f
        ln -s /tests/expected a; ln -s ../tests/expected b; ln -s ../.. d/up; ln -s d/up/tests/expected c
        ln -s /dev/fd/63 e; ln -s /proc/self/fd/3 g; ln -s /logs/verifier/reward.txt h; ln -s / i; ln a j
        ln -s /tests/expected d/closed/k; chmod 500 d/closed
        ln -s d/f good; ln -s /nowhere dangling; ln -s /dev/null null; ln -s loop loop; ln -s d folder"""
    )
    snapshot = await sandbox.snapshot()
    look = "cd /app; find . -type l | sort | tr '\\n' ' '; stat -c %a d/closed; cat good"
    kept = b"./dangling ./folder ./good ./loop ./null 500\nkept\n"
    assert (await (await rig.start(snapshot=snapshot, trusted_system=True)).exec(look)).output == kept
    plain = (await (await rig.start(snapshot=snapshot)).exec(look)).output
    assert plain.split()[:-2] == sorted(
        b"./a ./b ./c ./d/closed/k ./d/up ./dangling ./e ./folder ./g ./good ./h ./i ./j ./loop ./null".split()
    )


async def test_snapshots_may_follow_one_another_and_the_first_may_go(rig: Rig, sandbox: Sandbox) -> None:
    await sandbox.exec("echo 1 > one; mkdir -p d; echo x > d/gone; touch /usr/local/first")
    first = await sandbox.snapshot()
    second_box = await rig.start(snapshot=first, trusted_system=True)
    await second_box.exec("echo 2 > two; rm d/gone; echo 3 >> one")
    second = await second_box.snapshot()
    await rig.backend.drop(first)
    last = await rig.start(snapshot=second)
    shown = await last.exec("cat one two; ls d; ls /usr/local/first")
    assert shown.output == b"1\n3\n2\nls: cannot access '/usr/local/first': No such file or directory\n"


async def test_a_mount_is_shown_where_asked_and_read_only_unless_said(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/f").write_text("seen")
    (tmp_path / "out").mkdir()
    mounts = (
        Mount(tmp_path / "in", "/data/in"),
        Mount(tmp_path / "in/f", "/data/file"),
        Mount(tmp_path / "out", "/data/out", writable=True),
    )
    sandbox = await rig.start(mounts=mounts)
    result = await sandbox.exec(
        "cat /data/in/f /data/file; echo w > /data/out/w; echo x > /data/in/x; echo y > /data/file"
    )
    assert result.output.startswith(b"seenseen")
    assert result.exit_code != 0
    assert (tmp_path / "out/w").read_text() == "w\n"
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["f"]
    assert (tmp_path / "in/f").read_text() == "seen"


async def test_a_planted_link_does_not_move_a_mount(rig: Rig, sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec("ln -s /etc /tests; ln -s /etc/passwd /file; rm -r /logs; ln -s /app /logs")
    snapshot = await sandbox.snapshot()
    (tmp_path / "f").write_text("test")
    later = await rig.start(snapshot=snapshot, mounts=(Mount(tmp_path, "/tests"), Mount(tmp_path / "f", "/file")))
    result = await later.exec(
        "cat /tests/f /file; test -L /tests || test -L /logs; echo $?; stat -c %a /logs/verifier; ls /app"
    )
    assert result.output == b"testtest1\n777\n"


async def test_a_source_with_special_files_is_refused_and_nothing_is_left_hanging(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "link").symlink_to("/etc")
    for source in (tmp_path, tmp_path / "pipe", tmp_path / "link", tmp_path / "none", Path("/dev/zero")):
        with pytest.raises(SandboxRefusedError):
            await sandbox.put(source, "/in")
    assert (await sandbox.exec("echo alive")).output == b"alive\n"
