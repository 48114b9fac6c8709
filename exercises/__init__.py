"""The assignments and the tools that release and grade them."""

import transformer_lessons  # noqa: F401  before torch: it settles how torch's threads wait
