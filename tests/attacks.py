"""All attacks on the autograder, by theme; `test_autograder_attacks` tries each of them."""

from tests.attack_fixtures import endings, forging, loops, outside, reading, resources, state, wire, word
from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS", "THEMES", "named", "neighbours"]

THEMES: dict[str, tuple[Attack, ...]] = {
    "forging": forging.ATTACKS,
    "loops": loops.ATTACKS,
    "resources": resources.ATTACKS,
    "endings": endings.ATTACKS,
    "reading": reading.ATTACKS,
    "outside": outside.ATTACKS,
    "state": state.ATTACKS,
    "wire": wire.ATTACKS,
    "says of itself": word.ATTACKS,
}
HONEST = Attack(
    "an honest submission", "nothing: it is graded after the others as before", 'print("attack ran")'
)


def named() -> dict[str, Attack]:
    """All attacks in the order in which they are tried, and an honest submission before and after each theme."""
    found = {"first: an honest submission": HONEST}
    for theme, attacks in THEMES.items():
        found |= {f"{theme}: {attack.name}": attack for attack in attacks}
        found[f"{theme}: an honest submission afterwards"] = HONEST
    return found


ATTACKS = named()


def neighbours(name: str) -> tuple[Attack, ...]:
    """Those that share a submission with an attack, itself among them."""
    attack, attacks = ATTACKS[name], THEMES.get(name.partition(":")[0], ())
    if attack.alone or attack not in attacks:
        return (attack,)
    return tuple(other for other in attacks if not other.alone)
