"""The built site as a static host serves it: ``python -m book.serve [--port PORT]``, or ``make serve``.

Text goes out compressed, a folder's address gets its `index.html`, and an address that does not exist the page
`404.html`. Only this machine can ask.
"""

import argparse
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from book.built import HTML

__all__ = ["Server", "serving"]

COMPRESSED = (".css", ".html", ".js", ".json", ".svg", ".txt", ".xml")


@lru_cache(maxsize=1000)
def _compressed(path: Path, changed: float) -> bytes:
    return gzip.compress(path.read_bytes(), 6)


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments, prefix: str, is_quiet: bool, **named):
        self.prefix, self.is_quiet = prefix, is_quiet
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        """Send a file, or the page that says there is none."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send what is said of a file."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self._path()
        status = HTTPStatus.OK if path else HTTPStatus.NOT_FOUND
        path = path or Path(self.directory) / "404.html"
        is_compressed = path.suffix in COMPRESSED and "gzip" in self.headers.get("Accept-Encoding", "")
        data = _compressed(path, path.stat().st_mtime) if is_compressed else path.read_bytes()
        self.send_response(status)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "max-age=600")  # as GitHub Pages does
        if is_compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def _path(self) -> Path | None:
        if not self.path.startswith(self.prefix):
            return None
        path = Path(self.translate_path("/" + self.path.removeprefix(self.prefix)))
        path = path / "index.html" if path.is_dir() else path
        return path if path.is_file() else None

    def guess_type(self, path: Path) -> str:
        """The type, and of texts the encoding."""
        kind = super().guess_type(path)
        return f"{kind}; charset=utf-8" if path.suffix in COMPRESSED else kind

    def log_request(self, *about) -> None:
        """Say what was asked for, unless that is unwanted."""
        if not self.is_quiet:
            super().log_request(*about)


class Server(ThreadingHTTPServer):
    """Serves a built site.

    Args:
        html: the built site.
        port: to listen on; 0 for any that is free, which is then `server_port`.
        prefix: the path under which the site lies, as in "/transformer-lessons/".
        is_quiet: whether requests are not reported.
    """

    def __init__(self, html: Path, port: int = 0, prefix: str = "/", is_quiet: bool = False):
        handler = partial(_Handler, directory=str(html), prefix=prefix, is_quiet=is_quiet)
        super().__init__(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server_port}{prefix}"


@contextmanager
def serving(html: Path, prefix: str = "/") -> Iterator[str]:
    """Serve a built site quietly beside whatever else is done; its address."""
    with Server(html, prefix=prefix, is_quiet=True) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.url
        finally:
            server.shutdown()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m book.serve", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="(default: %(default)s)")
    options = parser.parse_args()
    with Server(HTML, options.port) as server:
        print(f"The book is at {server.url} (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
