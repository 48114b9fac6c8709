"""All attacks on the autograder, by theme; `test_autograder_attacks` tries each of them.

At each commit it tries every mechanism in one way, and all that share a submission; `make test-full` tries all.
"""

from tests.attack_fixtures import endings, forging, loops, outside, reading, resources, state, wire, word
from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS", "OTHER_WAYS", "neighbours"]

THEMES = {
    "forging": forging,
    "loops": loops,
    "resources": resources,
    "endings": endings,
    "reading": reading,
    "outside": outside,
    "state": state,
    "wire": wire,
    "says of itself": word,
}
HONEST = Attack(
    "an honest submission", "nothing: it is graded after the others as before", 'print("attack ran")'
)


def named() -> dict[str, Attack]:
    """All attacks in the order in which they are tried, and an honest submission before and after each theme."""
    found = {"first: an honest submission": HONEST}
    for theme, module in THEMES.items():
        found |= {f"{theme}: {attack.name}": attack for attack in module.ATTACKS}
        found[f"{theme}: an honest submission afterwards"] = HONEST
    return found


ATTACKS = named()
# By attack, the one of the same mechanism that is tried at each commit.
OTHER_WAYS = {
    f"{theme}: {other}": f"{theme}: {one}"
    for theme, module in THEMES.items()
    for one, others in getattr(module, "ALIKE", {}).items()
    for other in others
}


def neighbours(name: str) -> tuple[Attack, ...]:
    """Those that share a submission with an attack, itself among them."""
    attack, theme = ATTACKS[name], THEMES.get(name.partition(":")[0])
    if attack.alone or not theme:
        return (attack,)
    return tuple(other for other in theme.ATTACKS if not other.alone)
