"""The built book as GitHub Pages serves it, on this machine only: ``python -m book.serve PORT``."""

import sys
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from book.build import HTML


class Handler(SimpleHTTPRequestHandler):
    """Where nothing is, it sends the page 404."""

    error_content_type = "text/html; charset=utf-8"

    @property
    def error_message_format(self) -> str:
        """The page; Python's own handler fills numbers into it."""
        return next(Path(self.directory).rglob("404.html")).read_text(encoding="utf-8").replace("%", "%%")


def server(folder: Path = HTML, port: int = 0) -> ThreadingHTTPServer:
    """Of a folder, at a port that is free if none is named."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(folder)))


if __name__ == "__main__":
    with server(port=int(sys.argv[1])) as made, suppress(KeyboardInterrupt):
        print(f"The book is on http://127.0.0.1:{made.server_port}")
        made.serve_forever()
