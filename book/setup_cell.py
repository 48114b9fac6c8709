"""The first code cell of every notebook, the same everywhere; a test compares.

On Colab it installs the package of this release with `--no-deps`, plus only what Colab's image lacks, so that
torch and numpy stay as they are: replacing them under a running kernel breaks it. Elsewhere it installs nothing.
Everywhere it imports the package before torch, which settles how torch's threads wait.
"""

from transformer_lessons import __version__

SETUP_CELL = """\
# Setup: on Colab, install the course's package beside Colab's own torch; elsewhere, nothing is installed here.
import importlib.util
import sys

if "google.colab" in sys.modules:
    package = "git+https://github.com/transformer-lessons/transformer-lessons@vVERSION"
    needed = ("jaxtyping", "wadler_lindig", "safetensors", "tqdm")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    %pip install --quiet --no-deps {package} {" ".join(missing)}
import transformer_lessons  # before torch, whose threads then leave the processor to others while they wait
import torch
if "google.colab" in sys.modules:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    hint = "" if device != "CPU" else " (for a GPU: Runtime, Change runtime type)"
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {device}{hint}")""".replace(
    "VERSION", __version__
)
