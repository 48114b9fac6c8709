"""Batches that a thread makes ahead of time: the same ones, errors where they belong, and no thread left."""

import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from test_training import SMALL, small_batches, small_model

from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.packing import make_packed_batch
from transformer_lessons.trainer import Trainer
from transformer_lessons.trainer.prefetching import made_ahead


def others() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("next batch")}


def test_the_next_one_is_made_while_this_one_is_worked_on():
    began = {number: threading.Event() for number in range(5)}

    def make(number: int) -> tuple[int, str]:
        began[number].set()
        return number, threading.current_thread().name

    with made_ahead(make, 3) as made:
        for number in range(3):
            assert made(number)[0] == number
            assert made(number)[1] in others()
            assert number == 2 or began[number + 1].wait(10)
    assert not began[3].is_set()  # nobody would ask for it
    assert others() == set()


def test_whoever_asks_out_of_order_gets_what_he_asks_for():
    with made_ahead(lambda number: number, 10) as made:
        assert [made(number) for number in (0, 5, 6, 2, 2, 9, 11)] == [0, 5, 6, 2, 2, 9, 11]


def test_an_error_comes_out_where_it_belongs():
    def make(number: int) -> float:
        return 1 / (2 - number)

    with made_ahead(make, 5) as made:
        assert made(0) == 0.5
        assert made(1) == 1  # while 2 has failed already, or is about to
        with pytest.raises(ZeroDivisionError):
            made(2)
        assert made(3) == -1
    assert others() == set()


def test_ctrl_c_waits_for_no_more_than_the_batch_that_is_being_made():
    released, asked = threading.Event(), []

    def make(number: int) -> int:
        asked.append(number)
        assert number == 0 or released.wait(10)
        return number

    def work():
        with made_ahead(make, 9) as made:
            made(0)
            threading.Timer(0.1, released.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert others() == set()
    assert asked in ([0], [0, 1])


def test_a_run_is_the_same_as_step_by_step_and_its_batches_come_from_a_thread():
    ahead, one_by_one = (
        Trainer(small_model(dropout=0.3), small_batches(), replace(SMALL, steps=7)) for _ in "ab"
    )
    names, make = [], ahead._parts
    ahead._parts = lambda step: names.append(threading.current_thread().name) or make(step)
    torch.manual_seed(3)
    assert ahead.run(progress=False)
    torch.manual_seed(3)
    losses = [one_by_one.train_step()["loss"] for _ in range(7)]
    assert [record["loss"] for record in ahead.history] == losses  # to the bit
    for a, b in zip(ahead.model.parameters(), one_by_one.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(names) == 7
    assert all(name.startswith("next batch") for name in names)
    assert others() == set()
    ahead.train_step()  # outside of a run, by itself
    assert names[7:] == [threading.current_thread().name]


def test_a_gpu_finds_its_batches_in_memory_that_it_can_copy_by_itself(monkeypatch):
    trainer, pinned, devices = Trainer(small_model(), small_batches(), SMALL), [], []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(devices.append(device)))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.clone()) or pinned[-1])
    on_cpu = trainer._parts(0)[1]
    assert pinned == []
    trainer.device = torch.device("cuda", 1)
    parts = trainer._parts(0)[1]
    ours, theirs = ([ids for part in given for ids in part] for given in (parts, on_cpu))
    assert list(map(id, ours)) == list(map(id, pinned))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert devices == [trainer.device]  # on whose behalf: a thread begins with the first GPU


@pytest.mark.parametrize("given", [{}, {"non_blocking": True}])
def test_whether_to_wait_for_a_copy_is_said_for_each_tensor(monkeypatch, given):
    asked, batch = [], small_batches()[0]
    packed = make_packed_batch([([3], [4]), ([5], [6])], 9)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, **how: asked.append(how) or self)
    assert type(batch.to("cpu", **given)) is type(batch)
    assert type(packed.to("cpu", **given)) is type(packed)
    assert asked == [{"non_blocking": bool(given)}] * (len(batch) + len(packed))


def test_on_a_gpu_a_run_is_the_same_as_step_by_step(request):
    if not torch.cuda.is_available():
        (pytest.fail if request.config.getoption("--full") else pytest.skip)("no CUDA device here")
    ahead, one_by_one = (Trainer(small_model().cuda(), small_batches(), SMALL) for _ in "ab")
    assert all(ids.is_pinned() for part in ahead._parts(0)[1] for ids in part)
    assert ahead.run(progress=False)
    losses = [one_by_one.train_step()["loss"] for _ in range(SMALL.steps)]
    assert [record["loss"] for record in ahead.history] == pytest.approx(losses, rel=1e-3)


def test_a_bad_batch_stops_a_run_at_its_own_step():
    class Spoiled(Batches):
        def __getitem__(self, step: int):
            batch = super().__getitem__(step)
            return batch._replace(src=batch.src + 1_000 * (step == 3))

    trainer = Trainer(small_model(), Spoiled(small_batches().pairs, 5, seed=0), SMALL)
    with pytest.raises(ValueError, match="src: expected 0 to"):
        trainer.run(progress=False)
    assert trainer.step == 3
    assert others() == set()


@pytest.mark.parametrize(("kind", "size"), [(Batches, 5), (TokenBatches, 300)])
def test_two_threads_may_ask_for_batches_of_different_epochs(kind, size):
    """A notebook may look at a batch while a run makes the next."""

    class Slow(kind):
        """Whoever has shuffled an epoch is overtaken before he looks at it."""

        def __setattr__(self, name: str, value: object):
            super().__setattr__(name, value)
            if name == "_epoch":
                both.wait(10)

    both = threading.Barrier(1)
    pairs = small_batches().pairs
    batches, found = Slow(pairs, size, seed=0), {}
    per_epoch, both = batches.steps_per_epoch, threading.Barrier(2)

    def ask(epoch: int):
        found[epoch] = batches[epoch * per_epoch].src

    threads = [threading.Thread(target=ask, args=(epoch,)) for epoch in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for epoch in (0, 1):
        assert torch.equal(found[epoch], kind(pairs, size, seed=0)[epoch * per_epoch].src)
