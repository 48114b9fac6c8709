"""``python -m transformer_lessons …`` is ``lessons …``; `torchrun -m` needs it."""

import sys

from transformer_lessons.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
