"""What the tests of checks share."""

import pytest

from transformer_lessons import checks

TASKS = checks.tasks()


@pytest.fixture(autouse=True)
def as_users_run_it(no_shape_checks):
    """Learners do not run under the import hook, which would answer in place of the checks."""
