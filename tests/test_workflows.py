"""GitHub's workflows, which run elsewhere: they are valid and safe, and call targets that `make` has."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
# A line of a step. Values come from the environment, never from `${{ … }}`.
CALL = re.compile(r'make ([a-z-]+)( [A-Z]+="\$[A-Z_]+")*')


def run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, **options)


def test_workflows_match_githubs_schemas():
    from check_jsonschema import main as check_jsonschema  # takes seconds

    files = {
        "github-workflows": WORKFLOWS,
        "github-actions": [*(GITHUB / "actions").glob("*/action.yml")],
        "dependabot": [GITHUB / "dependabot.yml"],
    }
    for name, paths in files.items():
        done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{name}", *map(str, paths)])
        assert done.exit_code == 0, done.output


def test_an_audit_finds_nothing_unsafe():
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent))
    if zizmor is None:
        pytest.skip("zizmor is missing")
    done = run(zizmor, "--offline", "--no-progress", "--persona", "pedantic", str(GITHUB))
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_call_only_existing_make_targets():
    """And a job that may write calls `make github-release` alone, which runs only GitHub's own tools."""
    called = set()
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            for line in (line for step in job["steps"] for line in step.get("run", "").splitlines()):
                call = CALL.fullmatch(line)
                assert call, f"{path.name}, {name}: {line!r} is more than a make target"
                called.add(call[1])
                assert call[1] == "github-release" or "write" not in job["permissions"].values(), name
    done = run("make", "--dry-run", *sorted(called), cwd=ROOT)
    assert done.returncode == 0, done.stderr
