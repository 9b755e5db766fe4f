"""Git repositories, archives, permissions."""

import io
import struct
import tarfile
import zlib
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import FileSpec, Skill, Step, bash_text, both, lines, make_step, mistake, same

GIT = "git"
ARCHIVES = "archives"
PERMISSIONS = "permissions"
FIXED_TIME_S = 1_000_000_000
"""Commit and archive times: the same bytes on every build."""


def repository(folder: str, *more: str) -> str:
    """One RUN command that makes the folder a repository with one commit on `main` and an identity of its own."""
    dates = f"export GIT_AUTHOR_DATE='{FIXED_TIME_S} +0000' GIT_COMMITTER_DATE='{FIXED_TIME_S} +0000'"
    steps = (
        f"git init -q -b main {folder}",
        f"cd {folder}",
        "git config user.name dev",
        "git config user.email dev@example.com",
        "git add .",
        "git commit -q -m start",
        *more,
    )
    return " && ".join((dates, *steps))


def git_init(rng: Random, names: Names) -> Step:
    folder = names.word()
    return make_step(
        "git_init",
        GIT,
        rng.choice(
            (f"Make an empty git repository in a new folder {folder}.", f"Start a new git repository named {folder}.")
        ),
        turns=[f"git init -q {folder}"],
        novice=[f"mkdir {folder}"],
        checks={"folder": f"[ -d {folder} ]", "repository": f'[ "$(git -C {folder} rev-parse --git-dir)" = .git ]'},
    )


def git_commit(rng: Random, names: Names) -> Step:
    folder, old, new, message = names.word(), names.file(), names.file(), names.word()
    text = lines(names.words(1))
    return make_step(
        "git_commit",
        GIT,
        rng.choice(
            (
                f"Commit {new} in the git repository {folder} with the message {message}.",
                f"In the git repository {folder} commit the new file {new} with the message {message}.",
            )
        ),
        files={f"{folder}/{old}": lines(names.words(1)), f"{folder}/{new}": text},
        build=[repository(folder, f"git rm -q --cached {new}", "git commit -q --amend -m start")],
        turns=[f"git -C {folder} add {new}", f"git -C {folder} commit -qm {message}"],
        novice=[f"git -C {folder} add {new}"],
        checks={
            "committed": f'[ "$(git -C {folder} show HEAD:{new})" = {text.strip()} ]',
            "message": f'[ "$(git -C {folder} log -1 --format=%s)" = {message} ]',
        },
    )


def git_branch(rng: Random, names: Names) -> Step:
    folder, file, branch = names.word(), names.file(), names.word()
    return make_step(
        "git_branch",
        GIT,
        rng.choice(
            (
                f"Create the branch {branch} in the git repository {folder}.",
                f"Add a branch named {branch} to the git repository {folder}.",
            )
        ),
        files={f"{folder}/{file}": lines(names.words(1))},
        build=[repository(folder)],
        turns=[f"git -C {folder} branch {branch}"],
        novice=mistake(
            rng,
            [
                (
                    f"git -C {folder} checkout {branch}",
                    f"error: pathspec '{branch}' did not match any file(s) known to git\n",
                )
            ],
            [f"git -C {folder} tag {branch}"],
        ),
        checks={
            "exists": f"git -C {folder} show-ref --verify -q refs/heads/{branch}",
            "at_start": _same_commit(folder, f"refs/heads/{branch}"),
        },
    )


def git_tag(rng: Random, names: Names) -> Step:
    folder, file, tag = names.word(), names.file(), names.word()
    return make_step(
        "git_tag",
        GIT,
        rng.choice(
            (
                f"Tag the last commit of the git repository {folder} as {tag}.",
                f"Add the tag {tag} to the git repository {folder}.",
            )
        ),
        files={f"{folder}/{file}": lines(names.words(1))},
        build=[repository(folder)],
        turns=[f"git -C {folder} tag {tag}"],
        novice=[f"git -C {folder} branch {tag}"],
        checks={
            "exists": f"git -C {folder} show-ref --verify -q refs/tags/{tag}",
            "at_head": _same_commit(folder, f"refs/tags/{tag}^{{commit}}"),
        },
    )


def git_restore(rng: Random, names: Names) -> Step:
    folder, file, stray = names.word(), names.file(), names.word()
    text = lines(names.words(2))
    return make_step(
        "git_restore",
        GIT,
        rng.choice(
            (
                f"Undo the changes to {file} in the git repository {folder}.",
                f"Restore {file} in the git repository {folder} to its committed state.",
            )
        ),
        files={f"{folder}/{file}": text},
        build=[repository(folder, f"echo {stray} > {file}")],
        turns=[f"git -C {folder} checkout -q {file}"],
        novice=[f"rm {folder}/{file}"],
        checks={
            "stray_gone": f"! grep -qs {stray} {folder}/{file}",
            "restored": same(f"{folder}/{file}", text),
        },
    )


def _same_commit(folder: str, reference: str) -> str:
    revision = f"git -C {folder} rev-parse -q --verify"
    return f'[ "$({revision} {reference})" = "$({revision} main)" ]'


def tar_bytes(files: dict[str, str]) -> bytes:
    """An uncompressed archive with fixed owners and times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(text.encode()), FIXED_TIME_S
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def gzip_bytes(data: bytes) -> bytes:
    """A gzip member with one stored block (RFC 1952): the same bytes with any zlib. Up to 65535 bytes."""
    block = struct.pack("<BHH", 1, len(data), len(data) ^ 0xFFFF) + data
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + block + struct.pack("<II", zlib.crc32(data), len(data))


def tar_pack(rng: Random, names: Names) -> Step:
    folder, file, archive = names.word(), names.file(), names.file("tar.gz")
    text = lines(names.words(2))
    return make_step(
        "tar_pack",
        ARCHIVES,
        rng.choice(
            (
                f"Pack the folder {folder} into the gzipped tar archive {archive}.",
                f"Make the compressed archive {archive} of the folder {folder}.",
            )
        ),
        files={f"{folder}/{file}": text},
        turns=[f"tar -czf {archive} {folder}"],
        novice=[f"tar -cf {archive} {folder}"],
        checks={
            "holds_file": f'[ "$(tar -xOf {archive} {folder}/{file})" = "$(cat {folder}/{file})" ] && [ -s {archive} ]',
            "gzipped": f"gzip -t {archive}",
        },
    )


def tar_unpack(rng: Random, names: Names) -> Step:
    folder, file, archive = names.word(), names.file(), names.file("tar")
    text = lines(names.words(2))
    return make_step(
        "tar_unpack",
        ARCHIVES,
        rng.choice((f"Unpack {archive} here.", f"Extract the archive {archive} here.")),
        files={archive: FileSpec(tar_bytes({f"{folder}/{file}": text}))},
        turns=[f"tar -xf {archive}"],
        novice=mistake(rng, [(f"tar -tf {archive}", f"{folder}/{file}\n")], [f"rm {archive}"]),
        checks={
            "unpacked": same(f"{folder}/{file}", text),
            "archive_kept": both(f"[ -e {folder}/{file} ]", f"tar -tf {archive}"),
        },
    )


def gzip_keep(rng: Random, names: Names) -> Step:
    source = names.file()
    text = lines(names.words(3))
    return make_step(
        "gzip_keep",
        ARCHIVES,
        rng.choice((f"Compress {source} with gzip and keep the original.", f"Make a gzip copy of {source} beside it.")),
        files={source: text},
        turns=[f"gzip -k {source}"],
        novice=[f"gzip {source}"],
        checks={
            "compressed": f'gzip -t {source}.gz && [ "$(gzip -dc {source}.gz)" = {bash_text(text.rstrip())} ]',
            "original_kept": both(f"[ -s {source}.gz ]", same(source, text)),
        },
    )


def gunzip_file(rng: Random, names: Names) -> Step:
    target = names.file()
    text = lines(names.words(3))
    return make_step(
        "gunzip_file",
        ARCHIVES,
        rng.choice((f"Decompress {target}.gz in place.", f"Turn {target}.gz back into {target}.")),
        files={f"{target}.gz": FileSpec(gzip_bytes(text.encode()))},
        turns=[f"gunzip {target}.gz"],
        novice=[f"mv {target}.gz {target}"],
        checks={"right": same(target, text), "packed_gone": f"[ -s {target} ] && [ ! -e {target}.gz ]"},
    )


def make_runnable(rng: Random, names: Names) -> Step:
    target, word = names.file("sh"), names.word()
    text = f"#!/bin/bash\necho {word}\n"
    return make_step(
        "make_runnable",
        PERMISSIONS,
        rng.choice((f"Make {target} executable.", f"Make the script {target} runnable.")),
        files={target: text},
        turns=[f"chmod +x {target}"],
        novice=mistake(rng, [(f"bash {target}", f"{word}\n")], [f"chmod 644 {target}"]),
        checks={"executable": f"[ -x {target} ]", "runs": f'[ "$(timeout 5 ./{target})" = {word} ]'},
    )


def make_private(rng: Random, names: Names) -> Step:
    target = names.file()
    text = lines(names.words(2))
    return make_step(
        "make_private",
        PERMISSIONS,
        rng.choice(
            (f"Let only the owner read and write {target}.", f"Make {target} readable and writable by its owner only.")
        ),
        files={target: text},
        turns=[f"chmod 600 {target}"],
        novice=[f"chmod 400 {target}"],
        checks={
            "others_shut_out": f'[[ "$(stat -c %a {target})" == ?00 ]]',
            "owner_may": f'[ "$(stat -c %a {target})" = 600 ]',
        },
    )


def make_read_only(rng: Random, names: Names) -> Step:
    target = names.file()
    text = lines(names.words(2))
    return make_step(
        "make_read_only",
        PERMISSIONS,
        rng.choice((f"Make {target} read-only.", f"Take away all write permissions from {target}.")),
        files={target: text},
        turns=[f"chmod a-w {target}"],
        novice=[f"chmod +w {target}"],
        checks={
            "no_write": f'[[ "$(stat -c %A {target})" != *w* ]] && [ -f {target} ]',
            "still_readable": both(f'[[ "$(stat -c %a {target})" == 444 ]]', same(target, text)),
        },
    )


SKILLS = (
    Skill("git_init", GIT, git_init),
    Skill("git_commit", GIT, git_commit, level=2, turns_min=2),
    Skill("git_branch", GIT, git_branch),
    Skill("git_tag", GIT, git_tag),
    Skill("git_restore", GIT, git_restore, level=2),
    Skill("tar_pack", ARCHIVES, tar_pack, level=2),
    Skill("tar_unpack", ARCHIVES, tar_unpack),
    Skill("gzip_keep", ARCHIVES, gzip_keep, level=2),
    Skill("gunzip_file", ARCHIVES, gunzip_file),
    Skill("make_runnable", PERMISSIONS, make_runnable),
    Skill("make_private", PERMISSIONS, make_private, level=2),
    Skill("make_read_only", PERMISSIONS, make_read_only),
)
