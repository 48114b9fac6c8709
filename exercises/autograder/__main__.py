"""Grade untrusted notebooks: ``python -m exercises.autograder grade SOURCE`` and ``… doctor``."""

import argparse
import logging
import sys
import warnings
from pathlib import Path

from exercises.autograder import doctor
from exercises.autograder.result import Result

COURSE = Path(__file__).resolve().parents[1] / "_nbgrader"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 if all went well, 1 if something was not graded, 2 if nothing was."""
    options = _parser().parse_args(arguments)
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of nbgrader's libraries about each other
    return _doctor() if options.command == "doctor" else _grade(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m exercises.autograder", description=__doc__.split(":")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    grade = commands.add_parser("grade", help="grade a notebook, a folder, nbgrader's submitted/ or a zip")
    grade.add_argument("source", type=Path, help="where the submissions are")
    grade.add_argument(
        "--course", type=Path, default=COURSE, help="where gradebook and feedback go (%(default)s)"
    )
    grade.add_argument(
        "--unsafe-no-isolation",
        action="store_true",
        help="run students' code unprotected; every grade is marked so",
    )
    commands.add_parser("doctor", help="what isolation this machine offers, and how to get more")
    return parser


def _doctor() -> int:
    print(doctor.report())
    return 1 if doctor.problem() else 0


def _grade(options: argparse.Namespace) -> int:
    isolated = not options.unsafe_no_isolation
    if isolated and (refusal := _refusal(options)):
        print(refusal, file=sys.stderr)
        return 2
    from exercises.autograder.grade import grade  # nbgrader takes a second to import

    try:
        summary = grade(options.source, options.course, isolated=isolated)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    for result in summary.graded:
        print(_line(result))
    for one in summary.quarantined:
        print(f"not graded: {one.path}: {one.reason}")
    for path, reason in summary.failed:
        print(f"FAILED: {path}: {reason}")
    return 1 if summary.quarantined or summary.failed else 0


def _refusal(options: argparse.Namespace) -> str | None:
    """Why nothing is graded on this machine, and what to do."""
    if problem := doctor.problem():
        return (
            f"Students' code cannot be confined here ({problem}).\n"
            "`python -m exercises.autograder doctor` says how to get there. To run it unprotected all the same: "
            "--unsafe-no-isolation."
        )
    exposed = doctor.exposed([options.course, options.source])
    if exposed:
        return f"{exposed[0]} lies among Python's own files, which students' code may read: choose another place."
    return None


def _line(result: Result) -> str:
    earned, worth = (sum(getattr(cell, name) for cell in result.cells) for name in ("earned", "worth"))
    kinds = sorted({flag.kind for flag in result.flags})
    noted = f"  look at: {', '.join(kinds)}" if kinds else ""
    return f"{result.student}  {result.assignment}  {earned:g} of {worth:g}{noted}"


if __name__ == "__main__":
    sys.exit(main())
