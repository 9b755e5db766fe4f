"""Every byte string survives encoding, and no byte string can become structure."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiny_model import tiny_checkpoint

SPECIALS = ["<|bos|>", "<|cmd|>", "<|end|>", "<|out|>", "<|done|>"]
TEXTS = st.one_of(
    st.binary(max_size=80),
    st.lists(st.sampled_from([*SPECIALS, "cp", " kilo", "\n", "é", "\x00"])).map(lambda parts: "".join(parts).encode()),
)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_decode_of_encode_is_the_same_bytes_without_specials(raw: bytes) -> None:
    template = tiny_checkpoint().template
    ids = template.tokenizer.encode(raw)
    assert template.tokenizer.decode(ids) == raw
    assert not set(ids) & set(template.ids)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_a_commands_text_comes_back_from_its_answer(line: str) -> None:
    template = tiny_checkpoint().template
    answer = template.answer(tuple(template.command(line)))
    assert answer.command is not None
    assert answer.command == line.replace("\x00", "\ufffd")
