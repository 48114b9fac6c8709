"""Grade a class: ``python -m exercises.autograder COMMAND``; each command says what comes next.

Exit codes: 0 all went well; 1 something is left for a person (a file was put aside, or grading failed); 2
nothing was done, because of the arguments or of this machine; 3 stopped half-way: run the same command again
to continue; 130 stopped by Ctrl-C, likewise.
"""

import argparse
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DatabaseError

HERE = Path(__file__).resolve().parents[1]
COURSE = Path(os.environ.get("TRANSFORMER_LESSONS_COURSE") or HERE / "_nbgrader").absolute()
REHEARSAL = COURSE / "rehearsal"
REPORTING = ("status", "feedback", "report", "export", "similarity", "my-transformer")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    logging.getLogger("tornado.application").setLevel(logging.CRITICAL)  # nbgrader raises it, too
    warnings.simplefilter("ignore")  # nbgrader's libraries warn about each other
    try:
        from exercises.autograder.batch.grading import handle_interrupts  # nbgrader takes a second to import
        from exercises.autograder.commands import grading, reporting

        handle_interrupts()
        module = reporting if options.command in REPORTING else grading
        output = getattr(module, options.command.replace("-", "_"))(options)
    except (ValueError, OSError, DatabaseError, KeyboardInterrupt) as error:
        code, text = describe_stop(error)
        print(text, file=sys.stderr)
        return code
    try:
        print("\n".join(output.lines), flush=True)
    except BrokenPipeError:  # as behind `| head`; at the end, Python would write the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return output.code


def describe_stop(error: BaseException) -> tuple[int, str]:
    """The exit code and the message of a command that could not finish."""
    again = "What was done is kept: run the same command again to continue."
    if isinstance(error, KeyboardInterrupt):
        return 130, f"Stopped. {again}"
    first = str(error).partition("\n")[0]
    if "(sqlite3." in first:  # an error of SQLAlchemy's, or nbgrader's about one; other lines are SQL
        in_use = "is in use: close the program that has it open (formgrader, a viewer)"
        other = f"cannot be used: {first}. If it is damaged, restore gradebook.db from a backup"
        return 3, f"The gradebook {in_use if 'is locked' in first else other}. {again}"
    if isinstance(error, ValueError | FileNotFoundError):
        return 2, str(error)
    return 3, f"{error}. {again}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exercises.autograder",
        description=__doc__.split(":")[0],
        epilog=__doc__.split("\n\n")[1],
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    course = _option("--course", type=Path, default=COURSE, help="the course's folder (%(default)s)")
    rehearsal = _option("--course", type=Path, default=REHEARSAL, help="the rehearsal's folder (%(default)s)")
    roster = _option("--roster", type=Path, metavar="CSV", help="class list exported from Canvas or Moodle")
    every = _option("assignments", nargs="*", metavar="ASSIGNMENT", help="such as ps02_masks; default: all")
    work = _option("--workers", type=int, default=os.cpu_count(), metavar="N", help="processes (%(default)s)")
    cluster = "dask scheduler whose workers grade, such as tcp://10.0.0.1:8786"
    work.add_argument("--scheduler", metavar="ADDRESS", help=cluster)
    unsafe = "run students' code unprotected; every result says so"
    work.add_argument("--unsafe-no-isolation", action="store_true", help=unsafe)

    def command(name: str, help: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, parents=parents)

    command("doctor", "check whether students' code can be confined on this machine", course)
    one = command("release", "enter assignments into the gradebook", course, every)
    one.add_argument("--due", metavar="TIME", help="due date, such as '2026-12-01 23:59 +0100'")
    one = command("collect", "take submissions in without grading them", course, roster)
    one.add_argument("source", type=Path, help="a notebook, a folder, nbgrader's submitted/ or a zip")
    one = command("grade", "grade what is new", course, work, roster)
    one.add_argument("source", type=Path, nargs="?", help="as for `collect`; default: what was taken in")
    one = command("regrade", "grade again what a changed master affects", course, work, every)
    one.add_argument("--yes", action="store_true", help="enter the changes without asking")
    command("status", "show what is graded and what is left to do", course)
    command("feedback", "write all feedback pages again, after marking by hand", course)
    command("report", "write a page about the class", course, every)

    one = command("export", "write marks as CSV", course, every)
    one.add_argument("--template", type=Path, help="CSV exported from Canvas or Moodle, to be filled in")
    called = "the template's name for an assignment, or for a column in another language"
    one.add_argument("--column", action="append", default=[], metavar="OURS=THEIRS", help=called)
    one.add_argument("--to", type=Path, help="the file to write; by default in the course's folder")
    zero = "give 0 to whoever handed in nothing, not even a file that was put aside"
    one.add_argument("--missing-as-zero", action="store_true", help=zero)

    one = command("similarity", "list pairs that a person should look at", course)
    one.add_argument("assignment", metavar="ASSIGNMENT")
    one.add_argument("students", nargs="*", metavar="STUDENT", help="two ids: show both side by side")
    one = command("rehearse", "do a dry run with made-up students", rehearsal, work)
    one.add_argument("number", type=int, metavar="N", help="number of students")
    one.add_argument("--assignment", default="ps01_embeddings_attention", metavar="ASSIGNMENT")
    one = command("my-transformer", "run `lessons my-transformer` on a student's notebooks, in a box")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE.ipynb")
    own = "use the package's part where the student's is missing or wrong"
    one.add_argument("--fill", action="store_true", help=own)
    one.add_argument("--output", type=Path, default=Path("runs/theirs"), metavar="DIR", help="(%(default)s)")
    return parser


def _option(*words: str, **about: Any) -> argparse.ArgumentParser:
    """A parent parser with an option that several commands share."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*words, **about)
    return parser


if __name__ == "__main__":
    sys.exit(main())
