"""What somebody sees who has made a mistake, in the words that they would search for."""

SYMPTOMS = {
    "loss is NaN": "The loss, or some of the output, becomes NaN.",
    "loss does not fall": "The loss stays where it is.",
    "loss falls slowly": "The loss falls, but more slowly than it should.",
    "too good to be true": "The loss falls to almost nothing, and what is generated is poor.",
    "padding changes the answer": "A sentence's output depends on how much padding comes after it.",
    "batch-mates change it": "A sentence's output depends on the others in its batch.",
    "decoding repeats itself": "What is generated repeats itself, stops too early, or never.",
    "weights of a row do not sum to one": "Attention weights, or probabilities, do not sum to one.",
    "right shape, wrong numbers": "All shapes fit, and the numbers are wrong.",
    "slow or out of memory": "It is right, and takes too long or too much memory.",
    "error": "It raises an error, for some inputs at least.",
}
