"""All attacks on the autograder, one for each mechanism; `test_autograder_attacks` runs each of them."""

from tests.attack_fixtures import endings, forging, loops, outside, reading, resources, state, wire, word
from tests.attack_fixtures.attack import Attack, cell

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
HONEST = cell("")
# In the order in which they run, with an honest submission before the first and after the last.
ATTACKS = {
    "first: an honest submission": HONEST,
    **{f"{theme}: {name}": attack for theme in THEMES for name, attack in THEMES[theme].ATTACKS.items()},
    "last: an honest submission": HONEST,
}


def sharing_submission(name: str) -> tuple[Attack, ...]:
    """All attacks in the same submission as this one, itself included."""
    attack, theme = ATTACKS[name], THEMES.get(name.partition(":")[0])
    if attack.alone or not theme:
        return (attack,)
    return tuple(other for other in theme.ATTACKS.values() if not other.alone)
