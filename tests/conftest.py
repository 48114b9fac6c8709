"""Every test runs with the package's shape annotations checked at run time, and with a fixed seed."""

import transformer_lessons  # before torch: it sets how torch's threads wait

# isort: split
import gc
import pkgutil

import jaxtyping
import pytest
import torch
from hypothesis import settings

# Before anything imports its modules: each function then checks `Float[Tensor, "batch length d_model"]` & co.
# Not in `checks`: its mistakes redefine functions at each call, and the hook would compile each again.
ROOMS = {module.name for module in pkgutil.iter_modules(transformer_lessons.__path__)} - {"checks"}
jaxtyping.install_import_hook([f"transformer_lessons.{room}" for room in ROOMS], "beartype.beartype")


pytest_plugins = ["passes", "warm_kernels"]  # resume a full run; start chapters' kernels quickly


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run the tests marked `full` (hours)")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: too long for every commit; runs in `make test-full`")
    config.addinivalue_line("markers", "nbgrader: runs nbgrader, whose warnings are not ours to heed")
    config.addinivalue_line("markers", "isolated: runs learners' code in its box, where one can be made")
    # The same examples at every run: a test that fails for some inputs fails always, or never.
    for name, examples in (("every commit", 25), ("full", 500)):
        settings.register_profile(name, max_examples=examples, derandomize=True, deadline=None)
    settings.load_profile("full" if config.getoption("--full") else "every commit")


# nbgrader and its dependencies use SQLAlchemy, traitlets and jupyter_client in ways these now warn about, and
# leave closing sockets and databases to the garbage collector. We cannot change any of it.
OTHERS = ("Deprecation", "Future", "Resource", "sqlalchemy.exc.SA", "pytest.PytestUnraisableException")
OF_NBGRADER = pytest.mark.filterwarnings(*(f"ignore::{name}Warning" for name in OTHERS))


def pytest_generate_tests(metafunc):
    if "repetition" in metafunc.fixturenames:  # depends on when a process is killed
        metafunc.parametrize("repetition", range(50 if metafunc.config.getoption("--full") else 1))


def no_isolation() -> str | None:
    """Why learners' code cannot be isolated here, or None; imported late, as most tests need no grader."""
    from exercises.autograder import doctor

    return doctor.problem()


def pytest_collection_finish():
    """Freeze what exists now, so that the garbage collector does not search it for cycles again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 2, 200)


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "isolated" in item.keywords and (problem := no_isolation()):
            item.add_marker(pytest.mark.skip(reason=f"NOT TRIED, there is no isolation here: {problem}"))
        if "nbgrader" in item.keywords:
            item.add_marker(OF_NBGRADER)
        if "full" in item.keywords and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="runs in `make test-full`"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile` a worker takes one file at a time, or one test of those that run on every seed.

    The files in tests/checks stay together: each process finds out only once what the changed texts show.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            if "_on_every_seed[" in nodeid:
                return nodeid
            return "checks" if nodeid.startswith("tests/checks/") else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def fixed_seed():
    # While no GPU is in use, `torch.manual_seed` would store three stack traces, to set its seed later.
    seed = torch.manual_seed if torch.cuda.is_initialized() else torch.default_generator.manual_seed
    seed(0)


@pytest.fixture(scope="session")
def chromium(request):
    """Skip tests that need a browser where there is none, but fail in a full run."""
    from book import browser  # late, as most tests need none

    if browser.find() is None:
        if request.config.getoption("--full"):
            pytest.fail("the full tests need Chromium")
        pytest.skip("needs Chromium")


OUTCOMES = {}  # of all jobs graded in this session


@pytest.fixture(scope="module")
def graded_once():
    """Commands grade in this process, and a job that was graded before is not run again."""
    from exercises.autograder.batch import pool
    from exercises.autograder.commands import grading

    run = pool.run

    def once(job):
        key = (job.key, job.notebook)
        if key not in OUTCOMES:
            OUTCOMES[key] = run(job)
        return OUTCOMES[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "run", once)
        patch.setattr(grading, "ProcessPool", lambda workers: pool.InProcessPool())
        yield


@pytest.fixture
def lessons(capsys):
    """Run the command line in this process; return its exit code, stdout and stderr."""
    from transformer_lessons.tools import cli

    def command(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(arguments)
        except SystemExit as leave:
            code = leave.code
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def no_shape_checks():
    """No import hook, as for users: for tests of the package's own messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def assert_same_function(ours, theirs, *inputs):
    """Equal values, and for a random cotangent equal gradients of every input; modules: `test_oracles`."""
    from transformer_lessons.oracles import is_within, measure  # late, after the import hook

    deviation = measure.compare(ours, theirs, inputs)
    assert is_within(deviation, inputs[0].dtype), deviation


def assert_close(actual, expected, *, tolerance: float | None = None):
    """max|a − b| ≤ tolerance · max(1, max|b|): 1e-10 in float64, 1e-5 in float32."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if tolerance is None:
        tolerance = {torch.float64: 1e-10, torch.float32: 1e-5}[expected.dtype]
    if expected.numel():
        deviation = (actual - expected).abs().max().item()
        bound = tolerance * max(1.0, expected.abs().max().item())
        assert deviation <= bound, f"deviates by {deviation:.3g}, allowed {bound:.3g}"
