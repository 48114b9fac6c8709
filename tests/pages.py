"""The text and the elements of an HTML page."""

import re
from html import unescape
from html.parser import HTMLParser


def shown(html: str) -> str:
    """The text that a reader sees, between the tags."""
    text = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())


class Reader(HTMLParser):
    """The elements of a page with their attributes; its errors are in `wrong`."""

    def __init__(self, html: str):
        super().__init__()
        self.found, self.open, self.wrong = [], [], []
        self.feed(html)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"no end of {tag}")
