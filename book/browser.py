"""Chromium without a window, driven through its DevTools protocol over a pipe: no port, no driver, no package.

Every host name but this machine's is made unresolvable, so that a page which needs another server shows it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
    " --no-first-run --no-default-browser-check --hide-scrollbars"
    " --remote-debugging-pipe about:blank"
).split()
# Chromium reads commands from file 3 and writes answers to file 4. A shell cannot name files above 9, Python can.
PLACE_PIPES = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
SETTLED = """
(async () => {
  if (document.readyState !== "complete") await new Promise(done => addEventListener("load", done));
  await window.typesetEquations?.();
  await document.fonts.ready;
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
})()
"""


def find() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def unsandboxed() -> list[str]:
    """The flag for root, as whom Chromium refuses to run in its sandbox."""
    return ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


class Browser:
    """One page at a time: ``with Browser(width=375, dark=True) as browser: browser.open(path)``.

    `problems` lists what the open page complained of: errors and warnings on the console, uncaught exceptions,
    requests that failed.
    `requests` lists the addresses it asked for.
    """

    def __init__(self, width: int = 1280, height: int = 800, dark: bool = False):
        self.width, self.height, self.dark = width, height, dark
        self.problems: list[str] = []
        self.requests: list[str] = []

    def __enter__(self):
        executable = find()
        if executable is None:
            raise FileNotFoundError("no Chromium on the PATH")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = [
            *FLAGS,
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={self._profile.name}",
            *unsandboxed(),
        ]
        (command_out, command_in), (answer_out, answer_in) = os.pipe(), os.pipe()
        launcher = [sys.executable, "-c", PLACE_PIPES, str(command_out), str(answer_in), executable, *flags]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(launcher, pass_fds=(command_out, answer_in), **quiet)
        os.close(command_out)
        os.close(answer_in)
        self._commands, self._answers = os.fdopen(command_in, "wb"), os.fdopen(answer_out, "rb")
        self._number, self._session, self._buffer = 0, None, b""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")
        self.resize(self.width, self.height)
        features = {
            "prefers-color-scheme": "dark" if self.dark else "light",
            "prefers-reduced-motion": "reduce",
        }
        features = [{"name": name, "value": value} for name, value in features.items()]
        self.command("Emulation.setEmulatedMedia", features=features)
        return self

    def __exit__(self, *_):
        self._commands.close()  # Chromium ends when its pipe does
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._profile.cleanup()

    def command(self, method: str, **parameters) -> dict:
        """Send one command of the DevTools protocol and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            self._notice(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            piece = self._answers.read1(1 << 16)
            if not piece:
                raise RuntimeError("Chromium ended unexpectedly")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _notice(self, event: dict) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Network.loadingFailed" if not parameters.get("canceled"):
                self.problems.append(f"failed to load: {parameters['errorText']}")
            case "Runtime.exceptionThrown":
                self.problems.append(str(parameters["exceptionDetails"].get("exception", parameters)))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.problems.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def resize(self, width: int, height: int) -> None:
        """Give the page exactly this size in CSS pixels (a real window cannot be as narrow as a phone)."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", **sizes)

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Open a file, or an address, and wait until its scripts, fonts and equations are there."""
        self.problems.clear()
        self.requests.clear()
        url = page.resolve().as_uri() if isinstance(page, Path) else page
        url += f"#{fragment}" if fragment else ""
        answer = self.command("Page.navigate", url=url)
        if "errorText" in answer:
            raise FileNotFoundError(f"{page}: {answer['errorText']}")
        self.evaluate(SETTLED)

    def evaluate(self, script: str):
        """The value of a JavaScript expression in the open page (of a promise, what it resolves to)."""
        answer = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, timeout=60_000
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")
