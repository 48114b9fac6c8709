"""A Transformer made of parts from notebooks: with right parts it equals the package's, step for step."""

import copy
from dataclasses import replace

import nbformat
import pytest
import torch

from exercises import release
from transformer_lessons import checks
from transformer_lessons.checks.translator import assembly
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.batches import make_batch
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer
from transformer_lessons.tools.cli import main
from transformer_lessons.trainer.checkpoints import load_model

MASTERS = release.masters()[:8]  # solved notebooks, up to decoding


@pytest.fixture(scope="module")
def parts():
    return {part.task: part for path in MASTERS for part in assembly.found_in(path)}


def test_solved_notebooks_have_every_part_and_each_is_right(parts):
    assert parts.keys() == set(assembly.PARTS)
    assert [part for part in parts.values() if part.problem] == []


def test_a_model_of_own_parts_computes_what_the_packages_does(parts):
    torch.set_default_dtype(torch.float64)
    try:
        config = TransformerConfig(
            17, 13, d_model=20, num_heads=2, d_ff=28, num_encoder_layers=2, dropout=0.0
        )
        batch, gradients = make_batch([([5, 7, 3], [4, 9]), ([8], [3, 6, 11, 12])]), []
        for own in parts, {}:
            with assembly.assembled(own, config) as model:
                loss, tokens = label_smoothed_loss(model(batch.src, batch.tgt_in), batch.tgt_out, pad_id=0)
                (loss / tokens).backward()
                gradients.append({name: p.grad for name, p in model.named_parameters()})
    finally:
        torch.set_default_dtype(torch.float32)
    ours, theirs = gradients
    assert ours.keys() == theirs.keys() == dict(Transformer(config).named_parameters()).keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-10) for name in theirs)


@pytest.fixture
def short_training(monkeypatch):
    settings = replace(assembly.SETTINGS, steps=10, batch_size=24, training_pairs=500)
    monkeypatch.setattr(assembly, "SETTINGS", settings)
    monkeypatch.setattr(assembly.number_words, "held_out", lambda: (7, 421))


def test_the_model_is_trained_compared_saved_and_decoded(short_training, tmp_path, capsys):
    assert main(["my-transformer", *map(str, MASTERS), "--output", str(tmp_path / "mine")]) == 0
    said = capsys.readouterr().out
    assert f"LayerNorm                      yours ({MASTERS[4].name})" in said
    one, ten = (line.split() for line in said.splitlines() if line.split()[:1] in (["1"], ["10"]))
    assert one[1] == one[2]
    assert ten[1] == ten[2]  # the same start, the same batches: the same loss
    model, *_ = load_model(tmp_path / "mine")
    assert type(model) is Transformer
    assert "greedy:" in said
    assert "beam:" in said


def spoilt(path, folder, before, after):
    """A notebook with one answer changed."""
    notebook = copy.deepcopy(nbformat.read(path, as_version=4))
    for cell in notebook.cells:
        cell.source = cell.source.replace(before, after)
    nbformat.write(notebook, folder / path.name)
    return folder / path.name


def test_a_wrong_part_is_named_and_replaced_only_when_asked(short_training, tmp_path, capsys):
    wrong = spoilt(MASTERS[4], tmp_path, "class LayerNorm(nn.Module):", "class Other(nn.Module):")
    assert main(["my-transformer", str(wrong), "--output", str(tmp_path / "mine")]) == 2
    said = capsys.readouterr()
    assert "yours is not right" in said.out
    assert "repair LayerNorm or use ours (--fill, fill=True)" in said.err
    assert not (tmp_path / "mine").exists()
    assert main(["my-transformer", str(wrong), "--fill", "--output", str(tmp_path / "mine")]) == 0
    assert "the package’s; yours is not right" in capsys.readouterr().out
    (tmp_path / "mine" / "metrics.jsonl").touch()  # as `lessons train` leaves it
    assert main(["my-transformer", str(MASTERS[0]), "--output", str(tmp_path / "mine")]) == 2
    assert "mine holds a run of `lessons train`; name another folder\n" in capsys.readouterr().err
    assert main(["my-transformer", str(MASTERS[0]), "--output", str(MASTERS[0] / "in a file")]) == 2
    assert "in a file" in capsys.readouterr().err


def test_a_helper_in_an_added_cell_is_used_and_a_repaired_program_is_no_part(tmp_path):
    notebook = nbformat.read(MASTERS[0], as_version=4)
    answer = next(cell for cell in notebook.cells if cell.id == "ps01-3-answer")
    answer.source = answer.source.replace("torch.softmax(similarity, dim=-1)", "over_keys(similarity)")
    answer.source = f"%%time\n{answer.source}"
    own = nbformat.v4.new_code_cell(
        "%load_ext autoreload\n\ndef over_keys(x):\n    return x.softmax(dim=-1)\n\nprint(1 / 0)"
    )
    notebook.cells.insert(5, own)
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    found = {part.task: part for part in assembly.found_in(tmp_path / "mine.ipynb")}
    attention = found["scaled_dot_product_attention"]
    assert attention.problem == ""
    assert attention.own.__name__ == "scaled_dot_product_attention"  # not `repaired` of task 4


def test_missing_and_broken_notebooks_are_refused(tmp_path, capsys):
    (tmp_path / "x.ipynb").write_text("no JSON", encoding="utf-8")
    assert main(["my-transformer", str(tmp_path / "x.ipynb")]) == 2
    assert "file: expected a notebook (.ipynb, format 4), got" in capsys.readouterr().err
    unmatched = tmp_path / "ps08*.ipynb"  # a shell passes the pattern on if no file matches
    assert main(["my-transformer", str(unmatched)]) == 2
    assert "ps08*.ipynb, which does not exist" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected notebooks, got none"):
        checks.my_transformer([])


def test_the_last_cell_of_ps07_takes_the_notebooks_that_are_there(tmp_path, monkeypatch):
    cell = next(cell for cell in nbformat.read(MASTERS[6], as_version=4).cells if cell.id == "ps07-9-own")
    for name in ("ps07_training", "ps02_masks", "ps10_bug_clinic"):
        (tmp_path / f"{name}.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    taken = []
    monkeypatch.setattr(checks, "my_transformer", taken.extend)
    exec(cell.source, {"checks": checks})
    assert [path.stem for path in taken] == ["ps02_masks", "ps07_training"]
