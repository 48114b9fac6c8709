"""Corpus BLEU in other words."""

import math
from collections import Counter

import sacrebleu


def refuse(candidates, references):
    if len(candidates) != len(references) or any(len(of_one) == 0 for of_one in references):
        raise ValueError("references")


def of_sacrebleu(candidates, references):
    """The library itself; every candidate in the check has as many references as the others."""
    refuse(candidates, references)

    def text(tokens):
        return " ".join(map(str, tokens))

    columns = [[text(r) for r in column] for column in zip(*references, strict=True)]
    texts = [text(c) for c in candidates]
    return sacrebleu.corpus_bleu(texts, columns, tokenize="none", smooth_method="none").score


def by_dictionaries(candidates, references):
    refuse(candidates, references)
    logs, c, r = 0.0, 0, 0
    for n in (1, 2, 3, 4):
        hits = total = 0
        for candidate, of_one in zip(candidates, references, strict=True):
            grams = [tuple(candidate[i : i + n]) for i in range(len(candidate) - n + 1)]
            total += len(grams)
            for gram in set(grams):
                most = max(
                    sum(tuple(reference[i : i + n]) == gram for i in range(len(reference) - n + 1))
                    for reference in of_one
                )
                hits += min(grams.count(gram), most)
        if hits == 0:
            return 0
        logs += math.log(hits / total) / 4
    for candidate, of_one in zip(candidates, references, strict=True):
        c += len(candidate)
        r += sorted((abs(len(one) - len(candidate)), len(one)) for one in of_one)[0][1]
    return 100 * math.exp(logs + min(0, 1 - r / c))


def by_counters(candidates, references):
    refuse(candidates, references)

    def grams(tokens, n):
        return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))

    product, c, r = 1.0, sum(map(len, candidates)), 0
    for candidate, of_one in zip(candidates, references, strict=True):
        gaps = {abs(length - len(candidate)): length for length in sorted(map(len, of_one), reverse=True)}
        r += gaps[min(gaps)]
    for n in range(1, 5):
        right = all_of_them = 0
        for candidate, of_one in zip(candidates, references, strict=True):
            allowed = Counter()
            for reference in of_one:
                allowed = allowed | grams(reference, n)
            right += sum((grams(candidate, n) & allowed).values())
            all_of_them += max(0, len(candidate) - n + 1)
        product *= right / all_of_them if all_of_them else 0.0
    penalty = 1.0 if c > r or c == 0 else math.exp(1 - r / c)
    return 100.0 * penalty * product**0.25


ALTERNATES = [of_sacrebleu, by_dictionaries, by_counters]
