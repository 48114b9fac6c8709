"""Grade a class: ``python -m exercises.autograder COMMAND``; each command says what comes next.

Exit codes: 0 all went well; 1 something is left for a person (a file put aside, a grading that failed); 2 nothing
was done, because of what was typed or of this machine; 3 stopped half-way, and the same command goes on; 130
stopped by Ctrl-C, likewise.
"""

import argparse
import json
import logging
import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COURSE = Path(os.environ.get("TRANSFORMER_LESSONS_COURSE") or HERE / "_nbgrader")
REHEARSAL = COURSE / "rehearsal"
FORMATS = ("generic", "questions", "canvas", "moodle")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of nbgrader's libraries about each other
    from exercises.autograder import commands  # nbgrader takes a second to import
    from exercises.autograder.batch import stopping

    try:
        with stopping.noticing():
            said = getattr(commands, options.command.replace("-", "_"))(options)
    except commands.STOPS as error:
        code, text = commands.stopped(error)
        print(text, file=sys.stderr)
        return code
    print(json.dumps(said.data, ensure_ascii=False, indent=2) if options.json else "\n".join(said.lines))
    return said.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exercises.autograder",
        description=__doc__.split(":")[0],
        epilog=__doc__.split("\n\n")[1],
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    course, work = _about_the_course(), _about_the_work()
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--pseudonyms", action="store_true", help="no names, ids or paths of students")

    commands.add_parser("doctor", parents=[course], help="can students' code be confined on this machine?")

    one = commands.add_parser("release", parents=[course], help="have the gradebook know an assignment")
    one.add_argument("assignments", nargs="*", metavar="ASSIGNMENT", help="ps01_embeddings_attention, …; all")
    one.add_argument("--due", metavar="TIME", help="when it is due, such as '2026-12-01 23:59 +0100'")

    named_so = argparse.ArgumentParser(add_help=False)
    named_so.add_argument(
        "--roster", type=Path, metavar="CSV", help="the class, as Canvas or Moodle exports it"
    )

    one = commands.add_parser(
        "collect", parents=[course, named_so], help="take submissions in, without grading them"
    )
    one.add_argument("source", type=Path, help="a notebook, a folder, nbgrader's submitted/ or a zip")

    one = commands.add_parser("grade", parents=[course, work, named_so], help="grade what is new")
    one.add_argument("source", type=Path, nargs="?", help="likewise; or else what was taken in before")

    one = commands.add_parser(
        "regrade", parents=[course, work], help="grade again what a changed master concerns"
    )
    one.add_argument("assignments", nargs="*", metavar="ASSIGNMENT")
    one.add_argument("--yes", action="store_true", help="enter what changes without asking")

    commands.add_parser("status", parents=[course, named], help="what is graded, and what waits for whom")
    commands.add_parser("feedback", parents=[course], help="write all pages anew, after marking by hand")

    one = commands.add_parser("report", parents=[course, named], help="a page about the class")
    one.add_argument("assignments", nargs="*", metavar="ASSIGNMENT")

    one = commands.add_parser("export", parents=[course, named], help="marks as CSV")
    one.add_argument("assignments", nargs="*", metavar="ASSIGNMENT")
    one.add_argument("--format", choices=FORMATS, default="generic")
    one.add_argument("--template", type=Path, help="the CSV that Canvas or Moodle exports, to be filled in")
    one.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="what the template calls an assignment, or a column in another language",
    )
    one.add_argument("--to", type=Path, help="the file to write; by default in the course's folder")
    one.add_argument("--missing-as-zero", action="store_true", help="nothing handed in is 0, not empty")

    one = commands.add_parser(
        "similarity", parents=[course, named], help="pairs that a person should look at"
    )
    one.add_argument("assignment", metavar="ASSIGNMENT")
    one.add_argument("students", nargs="*", metavar="STUDENT", help="two: show them side by side")

    one = commands.add_parser(
        "rehearse",
        # Not `course` and set_defaults, which changes the default of every command that has the same parent.
        parents=[_about_the_course(REHEARSAL), work],
        help="a dry run with students who do not exist",
    )
    one.add_argument("number", type=int, metavar="N", help="of students")
    one.add_argument("--assignment", default="ps01_embeddings_attention", metavar="ASSIGNMENT")

    one = commands.add_parser(
        "expected",
        parents=[work],
        help="what textbooks' answers get, and what each known slip costs",
    )
    one.add_argument("assignments", nargs="*", metavar="ASSIGNMENT", help="all")
    one.add_argument("--json", action="store_true", help="all of it, for scripts")

    one = commands.add_parser(
        "my-transformer", help="lessons my-transformer for a student's notebooks, in a box"
    )
    one.add_argument("files", nargs="+", type=Path, metavar="FILE.ipynb")
    one.add_argument(
        "--fill", action="store_true", help="the package's part where theirs is missing or wrong"
    )
    one.add_argument("--output", type=Path, default=Path("runs/theirs"), metavar="DIR", help="(%(default)s)")
    one.add_argument("--json", action="store_true", help="say it as JSON, for scripts")
    return parser


def _about_the_course(folder: Path = COURSE) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--course", type=Path, default=folder, help="its folder (%(default)s)")
    parser.add_argument("--json", action="store_true", help="say it as JSON, for scripts")
    return parser


def _about_the_work() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), metavar="N", help="at a time (%(default)s)"
    )
    parser.add_argument("--executor", choices=("local", "dask"), default="local", help="who does the work")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of dask's: tcp://…:8786")
    parser.add_argument(
        "--unsafe-no-isolation",
        action="store_true",
        help="run students' code unprotected; every grade is marked so",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
