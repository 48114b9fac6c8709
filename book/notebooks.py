"""Execute the notebooks and store their outputs, normalised: ``python -m book.notebooks [NOTEBOOK …]``.

An executed notebook is committed, read in Colab, shown on the site and compared by nbval. So whatever differs
from run to run without meaning anything (times, versions, random ids) is taken out here, and nowhere by hand.
"""

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tqdm import tqdm

ROOT = Path(__file__).parent.parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# What a cell may carry: tags, alternative texts of figures, what nbgrader knows, Jupyter's folded state.
CELL_METADATA = ("tags", "mystnb", "nbgrader", "jupyter", "deletable", "editable")


def chapters() -> list[Path]:
    """The book's notebooks, in their order."""
    return sorted((ROOT / "book" / "chapters").glob("*.ipynb"))


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Keep what has a meaning; cells without an id of ours get one from their place."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    accelerator = {k: v for k, v in notebook.metadata.items() if k in ("accelerator", "colab")}
    notebook.metadata = nbformat.from_dict(
        {**accelerator, "kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for number, cell in enumerate(notebook.cells, start=1):
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in CELL_METADATA})
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
        if not str(cell.get("id", "")).startswith("cell-"):
            cell.id = f"cell-{number:03}"
    ids = [cell.id for cell in notebook.cells]
    if len(set(ids)) < len(ids):  # cells were added in between: number them all anew
        for number, cell in enumerate(notebook.cells, start=1):
            cell.id = f"cell-{number:03}"
    return notebook


def joined(outputs: list) -> list:
    """Printed text in one piece: a slow cell hands it over in several, as the clock has it."""
    kept = []
    for output in outputs:
        before = kept[-1] if kept else {}
        if output.output_type == "stream" and output.name == before.get("name"):
            before.text += output.text
        else:
            kept.append(output)
    return kept


def execute(path: Path) -> None:
    """Run a notebook top to bottom in its folder and store it; a failing one is left as it was."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    write(path, normalise(notebook))


def write(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Validate and store, whole or not at all."""
    nbformat.validate(notebook)
    temporary = path.with_suffix(".ipynb.new")
    temporary.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    temporary.replace(path)


def main() -> int:
    """Execute the notebooks named, or all chapters; returns 1 if a cell fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    for path in tqdm(parser.parse_args().notebooks or chapters(), unit="notebook"):
        try:
            execute(path)
        except CellExecutionError as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
