"""run.toml: what it says reaches the run, and what is wrong is named with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.science import PoolRules, Science, TrainingRules
from services.cli.profiles import profile_names, profile_text
from services.kernel.runfile import (
    Deployment,
    RunFile,
    RunFileError,
    first_difference,
    line_of,
    read_runfile,
    write_runfile,
)


def read(text: str) -> RunFile:
    return read_runfile(text, where="run.toml", profile=profile_text)


def test_an_empty_file_is_all_defaults() -> None:
    assert read("") == RunFile()
    assert read("").science.pool.target == 256


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[science]\nround = 3", "run.toml:2: science.round: unknown key; did you mean 'rounds'?"),
        ("sede = 1", "run.toml:1: sede: unknown key; did you mean 'seed'?"),
        ("seed = 1\n\n[sciense]\nrounds = 1", "run.toml:3: sciense: unknown key; did you mean 'science'?"),
        ("[science.pool]\n# all\n\ntarget = 0", "run.toml:4: science.pool.target: expected `int` >= 1"),
        ("[science]\npool = {target = 1, wave_max = 2}", "run.toml:2: science.pool.wave_max: unknown key; "),
        ("[science]\npool.target = 'many'", "run.toml:2: science.pool.target: expected `int`, got `str`"),
        ("[deployment]\nsolvers = true", "run.toml:2: deployment.solvers: expected `int`, got `bool`"),
        ("[science.training]\nlearning_rate = nan", "run.toml:2: science.training.learning_rate: a number must"),
        ("[science.training]\nobjective = 'ppo'", "run.toml:2: science.training.objective: invalid enum value 'ppo'"),
        ("[science]\ndomains = [\n  'files',\n  3,\n]", "run.toml:2: science.domains: expected `str`, got `int`"),
        ("[science]\nprofile = 'huge'", "run.toml:2: science.profile: there is no profile 'huge'; shipped: default"),
        ("[science]\nprofile = 3", "run.toml:2: science.profile: expected a string"),
        ("science = 3", "run.toml:1: science: expected `object`, got `int`"),
        ("[science]\nrounds = 1\nrounds = 2", "run.toml:3: not TOML: "),
        ("[deployment]\nsandbox = 'podman'", "run.toml:2: deployment.sandbox: invalid enum value 'podman'"),
        ("[models.a]\nmodel = 'm'", "run.toml:1: models.a: object missing required field `endpoint`"),
        (
            "[models.a]\nendpoint = 'e'\nmodel = 'm'\nspeach = 'block'",
            "run.toml:4: models.a.speach: unknown key; did you mean 'speech'?",
        ),
        ("[models.a]\nendpoint = 'e'\nmodel = 'm'\nprice = {prompt = 1}", "run.toml:4: models.a.price.prompt: unknown"),
        ("[models.'a.b']\nendpoint = 'e'\nmodel = 'm'", "run.toml: run.toml: expected `str` matching regex"),
        ("[deployment]\ndrain_s = 60", "run.toml:2: deployment.drain_s: expected `float` <= 3.5"),
    ],
)
def test_what_is_wrong_is_named_with_key_and_line(text: str, message: str) -> None:
    with pytest.raises(RunFileError) as error:
        read(text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_reads_and_carries_its_name(name: str) -> None:
    assert read(profile_text(name)).science.profile == name
    assert read(f"[science]\nprofile = '{name}'") == read(profile_text(name))


def test_the_file_wins_over_its_profile_key_by_key() -> None:
    file = read("[science]\nprofile = 'demo'\nrounds = 7\n[science.pool]\ntarget = 9")
    demo = read(profile_text("demo"))
    assert (file.science.rounds, file.science.pool.target) == (7, 9)
    assert file.science.pool.admit_per_round == demo.science.pool.admit_per_round
    assert file.science.training == demo.science.training


def test_the_demo_is_small_and_says_what_it_changes() -> None:
    demo = read(profile_text("demo")).science
    assert demo.rounds >= 3
    assert demo.pool.target < Science().pool.target
    assert demo.model == "nano"


text_values = st.text(st.characters(codec="utf-8"), max_size=12)


@given(
    seed=st.integers(0, 2**53),
    domains=st.lists(text_values, max_size=3),
    rate=st.floats(0, 1, allow_nan=False),
    base=text_values,
    target=st.integers(1, 10**6),
)
def test_a_written_file_reads_back_equal(seed: int, domains: list[str], rate: float, base: str, target: int) -> None:
    science = Science(domains=tuple(domains), training=TrainingRules(learning_rate=rate), pool=PoolRules(target=target))
    file = RunFile(seed=seed, science=science, deployment=Deployment(base=base, docker_pull=bool(seed % 2)))
    assert read(write_runfile(file)) == file


def test_a_difference_of_sciences_names_the_key() -> None:
    one = Science()
    assert first_difference(one, Science()) is None
    other = Science(pool=PoolRules(target=9))
    assert first_difference(one, other) == "science.pool.target: 256 and 9"


def test_the_line_of_a_key_is_where_its_statement_begins() -> None:
    text = 'a = """\nb = 1\n"""\n[t]\nx = [\n 1,\n 2,\n]\ny.z = 3\n'
    assert line_of(text, ("a",)) == 1
    assert line_of(text, ("t", "x")) == 5
    assert line_of(text, ("t", "y", "z")) == 9
    assert line_of(text, ("b",)) is None


def test_models_behind_endpoints_are_written_out_and_read_back_equal() -> None:
    file = read(
        "[models.big]\nendpoint = 'local'\nmodel = 'org/big-7b'\nspeech = 'block'\nepisode_usd_max = 0.5\n"
        "price = {prompt_usd = 2.5}\n[models.big.extra]\n'odd key' = 1\nreasoning = {effort = 'low'}\n[models.small]\n"
        "endpoint = 'local'\nmodel = 'small'"
    )
    assert file.models["big"].price.prompt_usd == 2.5
    assert file.models["big"].extra == {"odd key": 1, "reasoning": {"effort": "low"}}
    assert file.models["small"].episode_usd_max is None
    assert read(write_runfile(file)) == file
