"""The names of all tasks, and a fixture, for the tests of the checks."""

import pytest

from transformer_lessons import checks

TASKS = checks.tasks()


@pytest.fixture(autouse=True)
def as_users_run_it(no_shape_checks):
    """Learners run without the import hook, whose errors would come before the checks' own."""
