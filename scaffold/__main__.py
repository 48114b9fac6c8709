"""The commands: exit code 0 if something was begun, 2 if not, with one line that says why."""

import sys
from collections.abc import Sequence

from scaffold.chapter import new_chapter
from scaffold.files import ROOT
from scaffold.misconception import new_misconception
from scaffold.task import new_task
from transformer_lessons.tools.cli import Parser


def make_parser() -> Parser:
    """All commands and their arguments."""
    parser = Parser(prog="lessons", description="Begin something new in this clone of the course.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser(
        "new-chapter", help="an executed notebook, and its rows on the book's pages"
    )
    command.add_argument("name", metavar="NAME", help="of the file, without number: sparse_attention")
    command.add_argument("title", metavar="TITLE", help='"Sparse attention"')
    command.add_argument(
        "--exercise",
        default="ps10_bug_clinic",
        metavar="PS",
        help="the assignment it goes with (%(default)s)",
    )
    command.set_defaults(begin=new_chapter)

    command = commands.add_parser("new-task", help="something that exercises can check, with known mistakes")
    command.add_argument("name", metavar="NAME", help="of the function that learners write: row_size")
    command.add_argument("anchor", metavar="ANCHOR", help="where the book explains it: ch10-rms-norm")
    command.set_defaults(begin=new_task)

    command = commands.add_parser("new-misconception", help="a known mistake in a task's catalogue")
    command.add_argument("task", metavar="TASK", help="one of checks.tasks()")
    command.add_argument("name", metavar="ID", help="a short name for the mistake: falls_slowly")
    command.add_argument("step", metavar="STEP", help="of the right answer, that is replaced: fall")
    command.add_argument(
        "code", metavar="CODE", help='what stands there instead: "lambda step, warmup_steps: step**-0.4"'
    )
    command.add_argument("--anchor", metavar="ANCHOR", help="where the book explains it (as the task)")
    command.set_defaults(begin=new_misconception)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Begin one thing, and say what was written and what is left to do."""
    chosen = vars(make_parser().parse_args(arguments))
    command, begin = chosen.pop("command"), chosen.pop("begin")
    try:
        written, left = begin(**chosen)
    except (ValueError, OSError) as error:
        print(f"lessons {command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(*(f"written: {path.relative_to(ROOT)}" for path in written), sep="\n")
    print("left to do:", *left, sep="\n- ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
