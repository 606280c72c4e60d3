"""Somebody in front of the web UI: goes to pages, reads, clicks; nothing may go wrong unheard."""

from __future__ import annotations

import functools
import importlib.resources
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page

WAIT_MS = 15_000
AUDIT = """async () => {
  const { violations } = await axe.run();
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
}"""
VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def violations(page: Page) -> list[str]:
    """What axe finds wrong with the page as it is."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(f"{_axe()}; 0")
    return list(page.evaluate(AUDIT))


@functools.cache
def _axe() -> str:
    package = importlib.resources.files("axe_playwright_python")
    return package.joinpath("axe.min.js").read_text("utf-8")


class Visit:
    """One tab.  ``faults``: warnings and errors of the console, and exceptions that no code caught.

    ``shots`` is a directory for pictures.
    """

    def __init__(self, browser: Browser, url: str, shots: Path | None = None) -> None:
        self.url = url
        self.shots = shots
        self._browser = browser
        self.faults: list[str] = []
        context = browser.new_context(
            viewport={"width": 1360, "height": 900}, reduced_motion="reduce", accept_downloads=True
        )
        context.add_init_script(VIOLATIONS)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))

    def close(self) -> None:
        self.page.context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} {message.location.get('url')}")

    def check(self) -> None:
        """Nothing was complained about since the last look."""
        faults, self.faults = self.faults, []
        assert not faults, faults

    # -- moving about ------------------------------------------------------------------------

    def log_in(self, name: str = "guest", password: str = "guest") -> None:
        self.page.goto(self.url)
        self.page.get_by_label("User name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def go(self, address: str) -> None:
        """``address``: what stands behind the #."""
        self.page.evaluate("address => { location.hash = address }", address)

    def heading(self, text: str, level: Literal[1, 2] = 1) -> None:
        found = self.page.get_by_role("heading", name=text, exact=True, level=level)
        found.first.wait_for()

    def menu(self, entry: str) -> None:
        self.page.get_by_role("navigation").get_by_role("link", name=entry, exact=True).click()

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=re.compile(f"^{re.escape(name)}")).click()

    def dark(self, *, dark: bool) -> None:
        self.page.get_by_label("Theme").select_option("dark" if dark else "light")

    def shoot(self, name: str) -> None:
        """The whole page as it is, light and dark: nothing is wrong with it."""
        for theme in ("light", "dark"):
            self.dark(dark=theme == "dark")
            self.audit(theme)
            if self.shots is None:
                continue
            self.page.wait_for_timeout(60)  # charts are drawn anew
            folder = self.shots / theme
            folder.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=folder / f"{name}.png", full_page=True)

    def audit(self, theme: str) -> None:
        """Everything has a name, and can be read."""
        found = violations(self.page)
        assert found == [], f"{theme}: {self.page.url}: {found}"

    def shoot_now(self, name: str) -> None:
        """As the window is."""
        if self.shots is not None:
            self.shots.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=self.shots / f"{name}.png")

    def plain(self) -> BrowserContext:
        """Another browser, without script, that knows who it is."""
        login = {"username": "guest", "password": "guest"}
        return self._browser.new_context(java_script_enabled=False, http_credentials=login)

    def another(self) -> Visit:
        """Somebody else, in a browser of their own, who keeps no pictures."""
        return Visit(self._browser, self.url)

    def settle(self) -> None:
        """Until the server was heard, and nothing is drawn for the first time any more."""
        self.page.wait_for_function("() => document.documentElement.dataset.heard === 'all'")

    # -- reading -----------------------------------------------------------------------------

    def figure(self, label: str) -> Locator:
        """The number above a label."""
        exact = self.page.get_by_text(label, exact=True)
        return self.page.locator(".figure").filter(has=exact).locator(".value")

    def row(self, table: str, text: str) -> Locator:
        """The row of a table in which a cell has this text."""
        rows = self.page.get_by_role("table", name=table).get_by_role("row")
        return rows.filter(has=self.page.get_by_text(text, exact=True))

    def wait_for_text(self, locator: Locator, text: str) -> None:
        from playwright.sync_api import expect

        expect(locator).to_have_text(text, timeout=WAIT_MS)
