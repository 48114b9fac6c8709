"""A student's own Transformer, assembled and trained in the grader's box."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from exercises import release
from exercises.autograder import doctor
from exercises.autograder.running.transformer import save
from transformer_lessons.trainer.checkpoints import load_model

ROOT = Path(__file__).parent.parent
# A separate process, as one with threads cannot fork safely; two steps, two numbers, one file at a time.
PROGRAM = """
import sys
from dataclasses import replace
from exercises.autograder.__main__ import main
from transformer_lessons.checks.translator import assembly
assembly.SETTINGS = replace(assembly.SETTINGS, steps=2)
assembly.number_words.held_out = lambda: (7, 421)
for number, file in enumerate(sys.argv[2:]):
    print("ended with", main(["my-transformer", file, "--output", f"{sys.argv[1]}/run-{number}"]), flush=True)
"""

pytestmark = pytest.mark.nbgrader


@pytest.mark.skipif(doctor.problem() is not None, reason="no box can be made here")
def test_model_is_trained_in_the_box_where_files_outside_cannot_be_read(tmp_path):
    (tmp_path / "secret").write_text("the marks", encoding="utf-8")
    notebook = json.loads(release.masters()[0].read_text(encoding="utf-8"))
    answer = next(cell for cell in notebook["cells"] if cell["id"] == "ps01-2-answer")
    answer["source"] = f"class TokenEmbedding:\n    __doc__ = open({str(tmp_path / 'secret')!r}).read()"
    (tmp_path / "ann.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, tmp_path, release.masters()[0], tmp_path / "ann.ipynb"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said, refused = done.stdout.split("ended with 0\n")
    assert "TokenEmbedding                 yours (ps01_embeddings_attention.ipynb)" in said
    assert said.endswith(f"Saved. Go on with: lessons translate --model {tmp_path / 'run-0'} 421\n")
    load_model(tmp_path / "run-0")
    assert refused == "ended with 2\n"
    assert "FileNotFoundError" in done.stderr
    assert "the marks" not in done.stdout + done.stderr
    assert not (tmp_path / "run-1").exists()


def test_invalid_weights_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="the box: expected the model's weights, got others"):
        save({"output.weight": "x"}, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
