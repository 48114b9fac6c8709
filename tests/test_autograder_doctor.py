"""What the doctor reports, and that nothing is graded where isolation is incomplete."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from exercises.autograder import __main__ as command
from exercises.autograder import doctor
from exercises.autograder.box import linux

ROOT = Path(__file__).parents[1]
# A user namespace that allows no further ones: this imitates a machine that forbids them.
FORBIDDEN = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$@"'
REPORT = "from exercises.autograder.__main__ import main; print(main(['doctor']))"


@pytest.mark.isolated
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare, of util-linux, is missing")
def test_forbidden_namespaces_are_reported():
    line = ["unshare", "--user", "--map-root-user", "sh", "-c", FORBIDDEN, sys.executable, REPORT]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.stdout.startswith("namespaces: ")
    assert "sysctl" in done.stdout
    assert done.stdout.endswith("Learners' code CANNOT be confined here.\n1\n")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare, of util-linux, is missing")
def test_box_works_wherever_namespaces_can_be_created():
    """Otherwise a broken box would go unnoticed: the tests that need one would all be skipped."""
    spaces = ["--user", "--map-root-user", "--mount", "--net", "--ipc", "--pid", "--fork"]
    may = subprocess.run(["unshare", *spaces, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    assert doctor.problem() is None or may.returncode


PROBED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from exercises.autograder import doctor
probe_inside, folders = doctor._probe_inside, sys.argv[2:]
sys.prefix, sys.base_prefix = folders
def look(connection):
    if not any(doctor._works(lambda: os.mkdir(f"{folder}/new")) for folder in folders):
        probe_inside(connection)
doctor._probe_inside = look
doctor.probe()
"""


@pytest.mark.isolated
def test_python_may_be_installed_below_tmp_or_dev_shm_and_called_by_a_link(tmp_path):
    """Although the box has its own /tmp and /dev/shm; late imports must be found under the link's path."""
    link = tmp_path / "environment"
    link.symlink_to(sys.prefix)
    with tempfile.TemporaryDirectory(dir="/tmp") as one, tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        for folder in (one, other):
            Path(folder).chmod(0o777)
        for folders in ((one, other), (str(link), sys.base_prefix)):
            command = [sys.executable, "-I", "-c", PROBED, str(ROOT), *folders]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
            assert json.loads(done.stdout) == dict.fromkeys(doctor.MISSING, True), done.stderr


def test_each_missing_layer_of_isolation_is_reported(monkeypatch):
    monkeypatch.setattr(doctor.linux, "MACHINE", "x86_64")
    for hole, said in doctor.MISSING.items():
        seen = dict.fromkeys(doctor.MISSING, True) | {hole: False}
        monkeypatch.setattr(doctor, "_run_probe", lambda seen=seen: seen)
        assert doctor.problem.__wrapped__() == f"{hole}: {said}"
    monkeypatch.setattr(doctor.platform, "system", lambda: "Darwin")
    assert doctor.problem.__wrapped__().startswith("system: Darwin on ")


def test_without_a_box_nothing_is_graded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(doctor, "problem", lambda: "network: sockets can be opened")
    assert command.main(["grade", str(tmp_path), "--course", str(tmp_path / "course")]) == 2
    said = capsys.readouterr().err
    assert "cannot be confined here (network: sockets can be opened)" in said
    assert "--unsafe-no-isolation" in said
    assert not (tmp_path / "course").exists()
    assert command.main(["doctor"]) == 1
    assert f"network: sockets can be opened\n{doctor.ADVICE}\n" in capsys.readouterr().out


def test_a_course_among_pythons_own_files_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(doctor, "problem", lambda: None)
    inside = Path(sys.prefix) / "share" / "course"
    assert command.main(["grade", str(tmp_path), "--course", str(inside)]) == 2
    assert f"{inside} is in a folder of Python's that students' code can read" in capsys.readouterr().err
    assert doctor.exposed([tmp_path, ROOT / "exercises" / "_nbgrader"]) == []


def test_numbers_of_system_calls_are_the_kernels():
    """Compare with the C library's header for this machine."""
    header = Path("/usr/include/asm/unistd_64.h")
    found = [header, *Path("/usr/include").glob("*/asm/unistd_64.h")]
    text = next((path.read_text() for path in found if path.exists()), None)
    if text is None or linux.MACHINE != "x86_64":
        pytest.skip("no header of the kernel's system calls")
    known = dict(re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.MULTILINE))
    ours = {name: str(number) for name, number in linux.NUMBERS["x86_64"].items()}
    assert {name: known.get(name) for name in ours} == ours | dict.fromkeys({"open_tree_attr"} - known.keys())
    assert linux.NUMBERS["aarch64"].keys() == linux.NUMBERS["x86_64"].keys()
