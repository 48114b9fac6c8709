"""Run a notebook's code cells from top to bottom in this process: ``python run_notebook.py NOTEBOOK``.

What a kernel would add, a second process and messages between the two, does not matter where only this is asked:
does everything that the cells import and read exist?
"""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

if __name__ == "__main__":
    shell = InteractiveShell.instance()
    for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            shell.run_cell("".join(cell["source"])).raise_error()
