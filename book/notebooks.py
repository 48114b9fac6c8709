"""Execute the notebooks and store their outputs, normalised: ``python -m book.notebooks [NOTEBOOK …]``.

An executed notebook is committed, read in Colab, shown on the site and compared by nbval. So everything that
differs between runs without meaning (times, versions, random ids) is removed here, and never by hand.
"""

import sys
from functools import cache
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tqdm import tqdm

from transformer_lessons.data.files import write_text

CHAPTERS = Path(__file__).parent / "chapters"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = ("accelerator", "colab")
# What a cell may have: tags, alternative texts of figures, nbgrader's entries, Jupyter's folded state.
CELL_METADATA = ("tags", "mystnb", "nbgrader", "jupyter", "deletable", "editable")


def chapters(names: str = "*") -> list[Path]:
    """All chapters, in order; with ``"[0-9]*"``, those that have a number."""
    return sorted(CHAPTERS.glob(f"{names}.ipynb"))


@cache
def prose(path: Path) -> str:
    """The Markdown of a notebook."""
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Keep only meaningful metadata; if a cell has no id of ours, number all cells by their places."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    kept = {name: value for name, value in notebook.metadata.items() if name in METADATA}
    kept |= {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook.metadata = nbformat.from_dict(kept)
    ids = [str(cell.get("id", "")) for cell in notebook.cells]
    own = [name for name in ids if name.startswith("cell-")]
    for number, cell in enumerate(notebook.cells, start=1):
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in CELL_METADATA})
        if own != ids:  # cells were added: number all again
            cell.id = f"cell-{number:03}"
    return notebook


def execute(path: Path) -> None:
    """Run a notebook top to bottom in its folder and store it; a failing one is left as it was."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    # A slow cell delivers its text in several pieces, depending on time: join them.
    NotebookClient(notebook, timeout=600, coalesce_streams=True, resources=resources).execute()
    nbformat.validate(normalise(notebook))
    write_text(path, nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    for chosen in tqdm([Path(name) for name in sys.argv[1:]] or chapters(), unit="notebook"):
        try:
            execute(chosen)
        except CellExecutionError as error:
            sys.exit(f"{chosen}: {error}")
