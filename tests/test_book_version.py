"""All places name the same version, where bump-my-version will replace it (`make set-version`)."""

import re
import tomllib
from pathlib import Path

from transformer_lessons import __version__

ROOT = Path(__file__).parents[1]
BUMP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["bumpversion"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_place_says_this_version_where_it_will_be_replaced():
    assert BUMP["current_version"] == __version__
    for place in BUMP["files"]:
        paths = sorted(ROOT.glob(place.get("glob") or place["filename"]))
        assert paths, place
        search = place["search"].format(current_version=__version__)
        pattern = search if place.get("regex") else re.escape(search)
        missing = [p for p in paths if not re.search(pattern, p.read_text(encoding="utf-8"), re.MULTILINE)]
        assert not missing or (place.get("ignore_missing_version") and len(missing) < len(paths)), missing


def test_the_citation_and_the_changelog_agree():
    released = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE) == [
        "Unreleased",
        *(f"{version} - {day}" for version, day in released),
    ]
    assert len(dict(released)) == len(released)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    dates = re.findall(r'^date-released: "(.*)"$', citation, re.MULTILINE)
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [__version__]
    assert dates == [day for version, day in released[:1] if version == __version__]
