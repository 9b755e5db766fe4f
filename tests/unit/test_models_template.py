"""The terminal as tokens: structure cannot be forged, nothing is lost, and answers mean one thing."""

import json
import sys

import msgspec
import pytest

from services.kernel.models.config import ModelError
from services.kernel.models.template import Answer, Template, TemplateNames, Tokenizer
from tests.support.tiny_model import tiny_checkpoint, tiny_tokenizer


@pytest.fixture(scope="module")
def template() -> Template:
    return tiny_checkpoint().template


def test_a_conversation_has_its_special_tokens_where_they_belong(template: Template) -> None:
    bos, command, end, out, done = template.ids
    assert template.prompt("cp kilo") == [bos, *template.tokenizer.encode("cp kilo"), command]
    assert template.command("rm lima") == [*template.tokenizer.encode("rm lima"), end]
    assert template.observation("") == [out, command]
    assert template.submit() == [done]
    assert template.stop_ids == {end, done}


@pytest.mark.parametrize("special", ["<|bos|>", "<|cmd|>", "<|end|>", "<|out|>", "<|done|>"])
def test_special_tokens_in_text_are_plain_bytes(template: Template, special: str) -> None:
    text = f"cat {special}{special} x"
    ids = template.tokenizer.encode(text)
    assert not set(ids) & set(template.ids)
    assert template.tokenizer.decode(ids) == text.encode()


def test_bytes_that_are_no_utf8_are_encoded_one_by_one(template: Template) -> None:
    raw = b"cp \xff\xfe kilo \xc3\xa9 \xed\xa0\x80\x00"
    assert template.tokenizer.decode(template.tokenizer.encode(raw)) == raw


def test_lone_surrogates_have_an_encoding(template: Template) -> None:
    assert template.tokenizer.decode(template.tokenizer.encode("a\ud800\udcffb")) == b"a\xed\xa0\x80\xed\xb3\xbfb"


def test_answers_are_read_by_their_last_token(template: Template) -> None:
    _, command, end, _, done = template.ids
    line = tuple(template.tokenizer.encode("rm lima"))
    assert template.answer((*line, end)) == Answer("rm lima", truncated=False)
    assert template.answer((done,)) == Answer(None, truncated=False)
    assert template.answer((*line, done)) == Answer(None, truncated=False)
    assert template.answer((end,)) == Answer("", truncated=False)
    assert template.answer(line) == Answer(None, truncated=True)
    assert template.answer(()) == Answer(None, truncated=True)
    assert template.answer((command, *line, end)) == Answer("rm lima", truncated=False)


def test_commands_hold_no_nul_and_no_broken_utf8(template: Template) -> None:
    _, _, end, _, _ = template.ids
    ids = tuple(template.tokenizer.encode(b"a\x00b\xff"))
    assert template.answer((*ids, end)) == Answer("a\ufffdb\ufffd", truncated=False)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{}", "tokenizer.json"),
        ("tokenizer.json", b"\xff", "tokenizer.json"),
        ("tokenizer.json", b"", "tokenizer.json"),
        ("template.json", b"{", "template.json"),
        ("template.json", b"[1]", "template.json"),
        ("template.json", b'{"version": "terminal-9"}', "terminal-9"),
        ("template.json", b'{"bos": "<s>"}', "missing: \\['<s>'\\]"),
        ("template.json", b'{"bos": "<|cmd|>"}', "distinct"),
        ("template.json", b'{"name": "x"}', "template.json"),
    ],
)
def test_a_bad_tokenizer_or_template_says_what_is_wrong(name: str, content: bytes, message: str) -> None:
    files = dict(tiny_checkpoint().files) | {name: content}
    with pytest.raises(ModelError, match=message):
        Template.read(files)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ModelError, match=r"template\.json is missing"):
        Template.read({"tokenizer.json": tiny_tokenizer()})


def test_bytes_that_a_vocabulary_lacks_become_replacement_characters() -> None:
    plain = json.loads(tiny_tokenizer())
    plain["model"]["merges"] = []
    lacking = {"\u00ff", "\u0104"}
    plain["model"]["vocab"] = {t: i for t, i in plain["model"]["vocab"].items() if t not in lacking and i < 261}
    tokenizer = Tokenizer(json.dumps(plain).encode())
    assert tokenizer.decode(tokenizer.encode(b"a\xff\xfeb\x04")) == b"a\xef\xbf\xbd\xfeb\xef\xbf\xbd"


def test_a_tokenizer_without_all_bytes_of_ascii_is_refused() -> None:
    plain = json.loads(tiny_tokenizer())
    plain["model"]["merges"] = []
    plain["model"]["vocab"] = {t: i for t, i in plain["model"]["vocab"].items() if t != "q" and i < 261}
    with pytest.raises(ModelError, match="no token for the bytes b'q'"):
        Tokenizer(json.dumps(plain).encode())


def test_the_template_file_is_small_and_plain() -> None:
    assert json.loads(msgspec.json.encode(TemplateNames()))["end"] == "<|end|>"


def test_trajectories_and_templates_need_no_torch() -> None:
    import subprocess

    code = (
        "import sys, services.kernel.models, services.kernel.models.trajectory, services.kernel.models.template, "
        "services.kernel.models.protocol; sys.exit('torch' in sys.modules or 'tokenizers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
