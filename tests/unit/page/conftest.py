"""Pages, and a browser that opens them: a real Chromium, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clockwatt.page.write import write_page
from support.shared import made_once

if TYPE_CHECKING:  # takes more than a second of each process that collects
    from playwright.sync_api import Browser, Page

CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_OPENS_WITHIN_MS = 300_000
_NO_STORAGE = """
for (const name of ["localStorage", "sessionStorage", "indexedDB"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("storage is disabled", "SecurityError"); } });
}
Object.defineProperty(document, "cookie", { get() { throw new DOMException("no cookies", "SecurityError"); } });
"""


@dataclass
class Opened:
    """A page in a browser, with what it complained of and what it asked a network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def run(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium of this machine; .ci/run installs one."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("no Chromium here: apt install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=_OPENS_WITHIN_MS)
        yield browser
        browser.close()


def opener(chromium: Browser) -> Iterator[Any]:
    """Opens a file: `open_page(path, width=…, scheme=…, storage=False)`."""
    contexts = []

    def opened(path: Path, *, width: int = 1280, scheme: Any = "light", storage: bool = True) -> Opened:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.set_offline(True)
        context.set_default_timeout(_OPENS_WITHIN_MS)
        if not storage:
            context.add_init_script(_NO_STORAGE)
        found = Opened(context.new_page())
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on(
            "console", lambda said: said.type in ("error", "warning") and found.complaints.append(f"{said.text}")
        )
        found.page.on(
            "request",
            lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or found.requests.append(asked.url),
        )
        found.page.goto(path.as_uri())
        found.page.wait_for_selector("html[data-ready=yes]", state="attached")
        return found

    yield opened
    for context in contexts:
        context.close()


open_page = pytest.fixture(opener)
open_shared_page = pytest.fixture(opener, scope="module")


@pytest.fixture(scope="session")
def page_of_made(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the synthetic campaign."""

    def write(folder: Path) -> None:
        write_page(made.config, made.dataset, made.predictors, made.validation, folder / "explore.html")

    return made_once(tmp_path_factory, "page", write) / "explore.html"
