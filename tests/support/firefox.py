"""A real Firefox without a window, driven by WebDriver BiDi, which it speaks itself."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

_SAYS_WHERE = re.compile(r"WebDriver BiDi listening on (\S+)")
_OPENS_WITHIN_S = 300


class Firefox:
    """One page in a Firefox of its own profile, with what it complained of and what it asked a network for.

    Parameters
    ----------
    program
        The browser.
    profile
        An empty folder.
    dark
        Whether its user likes dark pages.
    storage
        Whether pages may store anything.
    """

    def __init__(self, program: str, profile: Path, *, dark: bool = False, storage: bool = True) -> None:
        preferences = {
            "ui.systemUsesDarkTheme": int(dark),
            "layout.css.prefers-color-scheme.content-override": 0 if dark else 1,
            "dom.storage.enabled": storage,
            "datareporting.policy.dataSubmissionEnabled": False,
            "app.update.disabledForTesting": True,
        }
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
        (profile / "user.js").write_text("\n".join(lines))
        self._process = subprocess.Popen(
            [program, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._numbers = itertools.count(1)
        self._socket: ClientConnection | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        assert self._process.stderr is not None
        address = next(found[1] for line in self._process.stderr if (found := _SAYS_WHERE.search(line)))
        self._socket = connect(f"{address}/session", max_size=None)
        self._send("session.new", capabilities={})
        self._send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._context = self._send("browsingContext.getTree")["contexts"][0]["context"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()
        self._process.terminate()
        self._process.communicate()

    def open(self, path: Path, *, width: int) -> None:
        """Open a page of results, and wait until it says that all is drawn."""
        self._send("browsingContext.setViewport", context=self._context, viewport={"width": width, "height": 900})
        self._send("browsingContext.navigate", context=self._context, url=path.as_uri(), wait="complete")
        deadline = time.monotonic() + _OPENS_WITHIN_S
        while self.run("document.documentElement.dataset.ready") != "yes":
            assert time.monotonic() < deadline, f"not drawn after {_OPENS_WITHIN_S} s: {self.complaints}"
            time.sleep(0.1)

    def run(self, expression: str) -> Any:
        """Value of an expression of JavaScript that JSON can tell."""
        found = self._send(
            "script.evaluate", expression=f"JSON.stringify({expression})", target={"context": self._context},
            awaitPromise=False,
        )  # fmt: skip
        assert found["type"] == "success", found
        return json.loads(found["result"].get("value", "null"))

    def _send(self, method: str, **parameters: Any) -> Any:
        assert self._socket is not None
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            heard = json.loads(self._socket.recv(timeout=_OPENS_WITHIN_S))
            if heard["type"] == "event":
                self._note(heard["method"], heard["params"])
            elif heard["id"] == number:
                assert heard["type"] == "success", heard
                return heard["result"]

    def _note(self, event: str, told: Any) -> None:
        if event == "log.entryAdded" and told["level"] in ("error", "warn"):
            self.complaints.append(told["text"])
        elif event == "network.beforeRequestSent":
            url = told["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:", "about:")):
                self.requests.append(url)
