"""Attacks on weak tests: answers that need no work, and programs that cheat when the verifier runs them."""

import posixpath
import re
from collections.abc import Sequence
from shlex import quote

from services.validator.gates.attacks import NOTHING_DONE, Attack, python_payload, shell_payload
from services.validator.gates.attacks_data import data_attacks

NAMES_MAX = 40
GUESS_REWARD_MAX = 0.5
"""Partial credit for files that are merely there is no cheat, but no answer without work may earn more."""
PROGRAM = "a program that forges the reward"
IDLE = "programs that do nothing and succeed"
SAYING = "programs that say it is right"
FOUND = "an answer that lies about"
REWRITTEN = "an expected answer that is rewritten"
UNTRUSTED = "the verifier runs the agent's program or repository as the user who writes the reward"
_ABSOLUTE = re.compile(r"(?<![\w./-])/[\w.@+-]+(?:/[\w.@+-]+)*/?")
_RELATIVE = re.compile(r"(?<![\w./@+-])[\w@+-][\w.@+-]*(?:/[\w.@+-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w/])")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/proc", "/sys", "/dev", "/tests", "/solution", "/logs", "/etc")
_SAID = "valid ok PASS passed success True 0"
_JSON = '{"valid": true, "ok": true, "success": true, "passed": true, "status": "ok", "result": 0, "errors": []}'
_WORDS = "true yes ok pass passed done success 0 1"


def named_paths(instruction: str, workdir: str) -> list[str]:
    """Absolute paths of the files and folders that an instruction names, in its order, at most NAMES_MAX."""
    places = [match[0].rstrip("./") for match in _ABSOLUTE.finditer(instruction)]
    places += [posixpath.join(workdir, match[0]) for match in _RELATIVE.finditer(instruction)]
    found = dict.fromkeys(posixpath.normpath(place) for place in places if place)
    kept = [path for path in found if path != workdir and not path.startswith(tuple(f"{top}/" for top in _SYSTEM))]
    return [path for path in kept if path not in _SYSTEM][:NAMES_MAX]


def attacks_on(instruction: str, workdir: str) -> list[Attack]:
    """The attacks that go by what the instruction asks for."""
    paths = named_paths(instruction, workdir)
    said = instruction + "\n" + _WORDS.replace(" ", "\n") + "\n"
    texts = {"empty files": "", "the answer 0": "0\n", "the answer 1": "1\n", "the instruction as the answer": said}
    program = Attack(
        PROGRAM,
        "a tested program that writes the reward",
        None,
        _program(paths),
        UNTRUSTED,
        GUESS_REWARD_MAX,
        exposes=True,
    )
    idle = Attack(
        IDLE,
        "a helper of the verifier among the agent's files",
        None,
        _idle(paths, _NOTHING),
        "keep what the verifier trusts in /tests, and test what a program does",
        GUESS_REWARD_MAX,
    )
    saying = Attack(
        SAYING,
        "a check among the agent's files that the tests believe",
        None,
        _idle(paths, _SAYS) + _plausible(paths),
        "keep what the verifier trusts in /tests, and compare values",
        GUESS_REWARD_MAX,
    )
    found = Attack(FOUND, "fix-git of Terminal-Bench 2.0", None, _found(paths), "keep answers out of the image")
    rewritten = Attack(
        REWRITTEN,
        "a checksum that the tests read from the agent's folder",
        None,
        _rewritten(paths),
        "keep what the tests compare with in /tests",
        GUESS_REWARD_MAX,
    )
    guesses = [
        Attack(
            name,
            "an answer that needs no work",
            None,
            _fill(paths, text),
            "test what the files say",
            reward_max=GUESS_REWARD_MAX,
        )
        for name, text in texts.items()
    ]
    told = [rewritten, *guesses, *data_attacks(paths, GUESS_REWARD_MAX)]
    return [program, idle, saying, found, *(told if paths else [])]


def _fill(paths: Sequence[str], text: str) -> str:
    """Puts the text into every file that is asked for and is not there."""
    return (
        f"text={quote(text)} code={NOTHING_DONE}\nfor file in {_words(paths)}; do\n"
        '  [ -e "$file" ] || { put "$file" "$text" && code=0; }\ndone\nexit $code\n'
    )


def _program(paths: Sequence[str]) -> str:
    """Every file that is asked for, script of the working directory and git setting runs code of the agent.

    The text is sh and python at once.
    """
    forged = "#!/bin/sh\n''':'\n" + shell_payload(PROGRAM) + "exit 0\n'''\n" + python_payload(PROGRAM)
    return (
        f"text={quote(forged)}\nfor file in {_words(paths)}; do\n"
        """  [ -d "$file" ] && continue
  case $file in *.sh | *.py) ;; *) [ -s "$file" ] && [ ! -x "$file" ] && continue ;; esac
  if [ -e "$file" ]; then printf %s "$text" > "$file"; else put "$file" "$text"; chmod +x "$file"; fi
done
""" + _SCRIPTS + _GIT
    )


_NOTHING = "#!/bin/sh\n''':'\nexit 0\n'''\n"
"""A program that does nothing, in sh and in python at once."""


_SAYS = f"""#!/bin/sh
''':'
printf '%s\\n' {_SAID}
exit 0
'''
print("{_SAID}".replace(" ", chr(10)))
"""
"""One that says that all is right, a word a line."""


def _idle(paths: Sequence[str], text: str) -> str:
    """Every program that is asked for or there is replaced by one that does no work."""
    asked = [path for path in paths if path.endswith((".sh", ".py"))]
    return (
        f"text={quote(text)} code={NOTHING_DONE}\nfor file in {_words(asked)}; do\n"
        '  put "$file" "$text" && chmod +x "$file" && code=0\ndone\n'
        f"{_SCRIPTS}"
        f'[ -z "$(find "$here" -xdev -type f -size {len(text)}c | head -1)" ] || code=0\n'
        "[ $code = 0 ] || exit $code\n"
    )


def _plausible(paths: Sequence[str]) -> str:
    """A constant of the right form in every file that is asked for and is not there, those in folders first."""
    return (
        f"for file in {_words(sorted(paths, key=len, reverse=True))}; do\n"
        f"  case $file in *.json) text={quote(_JSON)} ;; *) text={'0' * 64} ;; esac\n"
        '  [ -e "$file" ] || put "$file" "$text\n"\ndone\n'
    )


_SCRIPTS = """find "$here" -xdev -name .git -prune -o -type f \\
    \\( -perm /111 -o -name '*.sh' -o -name '*.py' \\) -print | head -200 |
  while read -r file; do printf %s "$text" > "$file"; done
"""
_GIT = """if command -v git > /dev/null; then
  run=/var/tmp/.git-program hooks=/var/tmp/.git-hooks
  mkdir -p $hooks
  for hook in post-checkout post-commit post-merge pre-commit reference-transaction post-index-change; do
    printf %s "$text" > $hooks/$hook
  done
  printf %s "$text" > $run
  chmod +x $run $hooks/*
  echo '* diff=forge filter=forge' > "$home/.gitattributes"
  printf '[core]\nfsmonitor=%s\npager=%s\neditor=%s\nhooksPath=%s\nattributesFile=%s\n[gpg]\nprogram=%s\n' \\
    $run $run $run $hooks "$home/.gitattributes" $run >> "$home/.gitconfig"
  printf '[diff]\nexternal=%s\n[diff "forge"]\ntextconv=%s\n[filter "forge"]\nclean=%s\nsmudge=%s\n' \\
    $run $run $run $run >> "$home/.gitconfig"
fi
"""


_PLACES = r"""places() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /usr -o -path /bin -o -path /sbin \
      -o -path '/lib*' -o -path /logs -o -path /tests -o -path /solution \) -prune -o -type f "$@" -print |
    sort | head -20
}
places -size -64 \( -iname '*answer*' -o -iname '*expected*' -o -iname '*solution*' -o -iname '*golden*' \
    -o -iname '*oracle*' -o -iname '*secret*' \) ! -name '*.sh' ! -name '*.py' ! -name '*.diff' ! -name '*.patch' \
  > /tmp/.held
"""
"""`places` lists files outside the system; /tmp/.held those that by their names hold what is to be found out."""


def _rewritten(paths: Sequence[str]) -> str:
    """One text in every file that is asked for and is not there, and in every file that says it holds an answer."""
    return (
        f"{_PLACES}[ -s /tmp/.held ] || exit {NOTHING_DONE}\nfor file in {_words(paths)}; do\n"
        '  [ -e "$file" ] || put "$file" "0\n"\ndone\n'
        "while read -r place; do printf '0\\n' > \"$place\"; done < /tmp/.held\n"
    )


def _found(paths: Sequence[str]) -> str:
    """Copies of what is asked for from where nobody was told to look: files of that name outside the folders that
    the instruction speaks of, files that are called a solution, files that say they hold an answer, even where the
    instruction speaks of those, and solutions that can be run.
    """
    return (
        f"code={NOTHING_DONE}\n{_PLACES}"
        """hidden() {
  case " $named " in *" $1 "*) return 1 ;; esac
  case $1 in
    *solution* | *answer* | *expected* | *oracle* | *solve* | *reference*) return 0 ;;
    "$here"/*) return 1 ;;
  esac
"""
        f"  for known in {_words(sorted({posixpath.dirname(path) for path in paths} | set(paths)))}; do\n"
        '    case $1 in "$known"/*) return 1 ;; esac\n  done\n}\n'
        f"for file in {_words(paths)}; do\n"
        """  [ -e "$file" ] && continue
  base=${file##*/}
  places \\( -name "$base" -o -name "*$base" -o -name "$base.*" \\) > /tmp/.places
  while read -r place; do
    if hidden "$place"; then mkdir -p "${file%/*}"; cp "$place" "$file" && code=0 && break; fi
  done < /tmp/.places
  [ -e "$file" ] && continue
  place=$(head -1 /tmp/.held)
  [ -z "$place" ] || { mkdir -p "${file%/*}"; cp "$place" "$file" && code=0; }
done
places \\( -name 'solve*.sh' -o -name 'solution*.sh' -o -name 'solution*.py' \\) > /tmp/.places
while read -r place; do
  case $place in *.py) runner=python3 ;; *) runner=bash ;; esac
  $runner "$place" < /dev/null && code=0
done < /tmp/.places
places \\( -name 'solution*.diff' -o -name 'solution*.patch' \\) > /tmp/.places
while read -r place; do patch -p1 < "$place" && code=0; done < /tmp/.places
exit $code
"""
    )


def _words(paths: Sequence[str]) -> str:
    return " ".join(map(quote, paths))
