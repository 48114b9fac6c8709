"""All attacks on the autograder, one way of each mechanism; `test_autograder_attacks` tries each of them."""

from tests.attack_fixtures import endings, forging, loops, outside, reading, resources, state, wire, word
from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS", "neighbours"]

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
# In the order in which they are tried, and an honest submission before the first and after the last.
ATTACKS = {
    "first: an honest submission": HONEST,
    **{f"{theme}: {attack.name}": attack for theme, module in THEMES.items() for attack in module.ATTACKS},
    "last: an honest submission": HONEST,
}


def neighbours(name: str) -> tuple[Attack, ...]:
    """Those that share a submission with an attack, itself among them."""
    attack, theme = ATTACKS[name], THEMES.get(name.partition(":")[0])
    if attack.alone or not theme:
        return (attack,)
    return tuple(other for other in theme.ATTACKS if not other.alone)
