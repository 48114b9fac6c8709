"""What became of the mutants: a table, the survivors, and why no test can tell some of them from the original."""

import tomllib
from importlib.metadata import version
from platform import python_version

from benchmarks.mutant_runs import STUCK, SURVIVED, Project
from benchmarks.mutations import Mutant

ARGUED = "benchmarks/mutants_argued.toml"
COLUMNS = ("mutants", "killed", "timed_out", "survived", "argued")


def arguments(project: Project, name: str = ARGUED) -> list[dict]:
    """Survivors that are argued for: module, text of the line, mutation, and why no test could tell."""
    path = project.root / name
    return tomllib.loads(path.read_text(encoding="utf-8")).get("argued", []) if path.exists() else []


def argument(mutant: Mutant, argued: list[dict]) -> str | None:
    """Why a mutant survives, if somebody said."""
    place = (mutant.module, mutant.text, mutant.mutation)
    return next(
        (one["why"] for one in argued if (one["module"], one["line"], one["mutation"]) == place), None
    )


def stale(argued: list[dict], verdicts: dict[Mutant, str]) -> list[str]:
    """Arguments that match no survivor of the modules looked at: another line now, or a test tells after all."""
    seen = {mutant.module for mutant in verdicts}
    lived = {(m.module, m.text, m.mutation) for m, outcome in verdicts.items() if outcome == SURVIVED}
    places = [(one["module"], one["line"], one["mutation"]) for one in argued if one["module"] in seen]
    return [": ".join(place) for place in places if place not in lived]


def counted(verdicts: dict[Mutant, str], argued: list[dict]) -> dict[str, dict]:
    """Numbers for each module; a mutant that timed out is among the killed."""
    rows = {}
    for mutant, outcome in verdicts.items():
        row = rows.setdefault(mutant.module, dict.fromkeys(COLUMNS, 0))
        row["mutants"] += 1
        row["survived" if outcome == SURVIVED else "killed"] += 1
        row["timed_out"] += outcome == STUCK
        row["argued"] += outcome == SURVIVED and argument(mutant, argued) is not None
    return rows


def total(rows: dict[str, dict]) -> dict:
    """The sum of all rows."""
    return {name: sum(row[name] for row in rows.values()) for name in next(iter(rows.values()))}


def report(verdicts: dict[Mutant, str], argued: list[dict]) -> None:
    """Print the table, and each survivor with its argument."""
    rows = counted(verdicts, argued)
    print("module                   mutants  killed  timed out  survived  argued  killed, %")
    for name, row in {**rows, "all": total(rows)}.items():
        share = 100 * row["killed"] / row["mutants"]
        print(
            f"{name:24} {row['mutants']:7} {row['killed']:7} {row['timed_out']:10} {row['survived']:9} "
            f"{row['argued']:7} {share:10.1f}"
        )
    for mutant, outcome in verdicts.items():
        if outcome == SURVIVED:
            print(f"\n{mutant.id}\n    {mutant.text}\n    {argument(mutant, argued) or 'NOT ARGUED'}")


def record(verdicts: dict[Mutant, str], argued: list[dict]) -> dict:
    """All of it for a JSON file; the same on every device."""
    rows = counted(verdicts, argued)
    survivors = [
        {"module": m.module, "line": m.text, "mutation": m.mutation, "why": argument(m, argued)}
        for m, outcome in verdicts.items()
        if outcome == SURVIVED
    ]
    made_with = {"python": python_version()} | {name: version(name) for name in ("torch", "pytest")}
    return {"made_with": made_with, "total": total(rows), "modules": rows, "survivors": survivors}
