"""SQLite databases: load, query, change. The base has `sqlite3`, as a program and as a module of Python."""

# ruff: noqa: S608 - the statements are an exercise: nothing here runs them

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, bash_text, both, lines, make_step
from services.proposer.authoring.skills.derive import derived, shuffled

FAMILY = "sqlite"


def _stock(rng: Random, names: Names, count: int = 5) -> dict[str, int]:
    """Amounts by name, all different."""
    amounts = rng.sample(range(10, 999), count)
    return dict(zip(shuffled(rng, names.words(count)), amounts, strict=True))


def _script(table: str, stock: dict[str, int]) -> str:
    rows = [f"INSERT INTO {table} VALUES ('{name}', {amount});" for name, amount in stock.items()]
    return lines([f"CREATE TABLE {table} (name TEXT, amount INTEGER);", *rows])


def _make(database: str, script: str) -> str:
    """A RUN command that turns the script into the database."""
    return f"sqlite3 {database} < {script} && rm {script}"


def _rows(database: str, table: str, query: str = "SELECT name, amount FROM {} ORDER BY name") -> str:
    """A command that prints rows by Python's module, which reads no settings of the agent's."""
    program = (
        f'import sqlite3; rows = sqlite3.connect("file:{database}?mode=ro", uri=True)'
        f'.execute("{query.format(table)}"); print(*("|".join(map(str, row)) for row in rows), sep="\\n")'
    )
    return f"python3 -I -S -c '{program}'"


def _listed(stock: dict[str, int]) -> str:
    return "\n".join(f"{name}|{stock[name]}" for name in sorted(stock))


def sql_select(rng: Random, names: Names) -> Step:
    database, script, table, target = names.file("db"), names.file("sql"), names.word(), names.file()
    stock = _stock(rng, names)
    limit = sorted(stock.values())[2] - 1
    right = sorted(name for name, amount in stock.items() if amount > limit)
    return derived(
        rng,
        "sql_select",
        FAMILY,
        (
            f"Write the names in the table {table} of the SQLite database {database} with an amount above {limit} "
            f"to {target}, sorted.",
            f"Query {database} (SQLite): save the names whose amount in {table} is more than {limit}, sorted by "
            f"name, to {target}.",
        ),
        files={script: _script(table, stock)},
        build=[_make(database, script)],
        target=target,
        right=lines(right),
        turns=[f"sqlite3 {database} 'SELECT name FROM {table} WHERE amount > {limit} ORDER BY name' > {target}"],
        novice=[f"sqlite3 {database} 'SELECT * FROM {table} WHERE amount > {limit}' > {target}"],
        kept=f'[ "$({_rows(database, table)})" = {bash_text(_listed(stock))} ]',
    )


def sql_update(rng: Random, names: Names) -> Step:
    database, script, table = names.file("db"), names.file("sql"), names.word()
    stock = _stock(rng, names, 4)
    name, new = rng.choice(list(stock)), rng.randint(1000, 1999)
    told = _listed({**stock, name: new})
    updated = f"{_rows(database, table)} | grep -qxF '{name}|{new}'"
    return make_step(
        "sql_update",
        FAMILY,
        rng.choice(
            (
                f"Set the amount of {name} in the table {table} of the SQLite database {database} to {new}.",
                f"Change {database} (SQLite) so that {table} has the amount {new} for {name}.",
            )
        ),
        files={script: _script(table, stock)},
        build=[_make(database, script)],
        turns=[f"""sqlite3 {database} "UPDATE {table} SET amount = {new} WHERE name = '{name}'" """.rstrip()],
        novice=[f"sqlite3 {database} 'UPDATE {table} SET amount = {new}'"],
        checks={
            "amount_set": updated,
            "rest_kept": both(updated, f'[ "$({_rows(database, table)})" = {bash_text(told)} ]'),
        },
    )


def sql_load(rng: Random, names: Names) -> Step:
    script, table, database = names.file("sql"), names.word(), names.file("db")
    stock = _stock(rng, names, 4)
    return make_step(
        "sql_load",
        FAMILY,
        rng.choice(
            (
                f"Make the SQLite database {database} from the statements in {script}.",
                f"Run the SQL of {script} with SQLite so that its table ends up in the new database {database}.",
            )
        ),
        files={script: _script(table, stock)},
        turns=[f"sqlite3 {database} < {script}"],
        novice=[f"cp {script} {database}"],
        checks={
            "all_rows": f'[ "$({_rows(database, table)})" = {bash_text(_listed(stock))} ]',
            "sum_right": f'[ "$({_rows(database, table, "SELECT sum(amount) FROM {}")})" = {sum(stock.values())} ]',
        },
    )


def sql_export(rng: Random, names: Names) -> Step:
    database, script, table, target = names.file("db"), names.file("sql"), names.word(), names.file("csv")
    stock = _stock(rng, names, 4)
    ranked = sorted(stock, key=lambda name: -stock[name])
    return derived(
        rng,
        "sql_export",
        FAMILY,
        (
            f"Save the table {table} of the SQLite database {database} as CSV without a header to {target}, the "
            "largest amount first.",
            f"Write name,amount lines of {table} in {database} (SQLite) to {target} from the largest amount to the "
            "smallest.",
        ),
        files={script: _script(table, stock)},
        build=[_make(database, script)],
        target=target,
        right=lines([f"{name},{stock[name]}" for name in ranked]),
        turns=[f"sqlite3 -separator , {database} 'SELECT * FROM {table} ORDER BY amount DESC' > {target}"],
        novice=[f"sqlite3 {database} 'SELECT * FROM {table} ORDER BY amount' > {target}"],
        kept=f'[ "$({_rows(database, table)})" = {bash_text(_listed(stock))} ]',
    )


SKILLS = (
    Skill("sql_select", FAMILY, sql_select, level=3),
    Skill("sql_update", FAMILY, sql_update, level=3),
    Skill("sql_load", FAMILY, sql_load, level=2),
    Skill("sql_export", FAMILY, sql_export, level=3),
)
