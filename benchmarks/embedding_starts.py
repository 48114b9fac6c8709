"""Chapter 2's experiment, whole: ``python -m benchmarks.embedding_starts`` (three minutes on one core).

Five kinds of start, three seeds each, by the chapter's own cells. Writes
``transformer_lessons/records/embedding_starts.json``, which the chapter shows; it runs the first steps itself.
"""

from tqdm import tqdm

from benchmarks import by_chapter

CELLS = ("# @title What this chapter imports", "# @title The experiment: five kinds of start")
STEPS, EVERY, MEAN_OF, SEEDS = 1_000, 50, 10, (0, 1, 2)


def shown(losses: list[float]) -> list[float]:
    """The first loss, then means of the last few up to every 50th step."""
    ends = range(EVERY, len(losses) + 1, EVERY)
    means = [sum(losses[end - MEAN_OF : end]) / MEAN_OF for end in ends]
    return [round(loss, 3) for loss in (losses[0], *means)]


def main() -> None:
    """Train each kind with each seed, and write the record."""
    chapter = by_chapter.definitions("02_tokens_and_embeddings", *CELLS)
    losses: dict[str, list] = {kind: [] for kind in chapter["KINDS"]}
    for kind, seed in tqdm([(kind, seed) for kind in losses for seed in SEEDS], unit="run"):
        _, found = chapter["train"](kind, seed, STEPS)
        losses[kind].append(shown(found))
    by_chapter.write("embedding_starts", losses=losses)


if __name__ == "__main__":
    main()
