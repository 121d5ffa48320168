"""Pages of reports in a real, headless browser."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Opened:
    """A page with what it complained about and what it asked for."""

    def __init__(self, page):
        self.page = page
        self.complaints, self.requests = [], []
        page.on("console", lambda m: self.complaints.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: self.complaints.append(str(e)))
        page.on("request", lambda r: self.requests.append(r.url))

    def open(self, path):
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=20_000)
        return self

    def js(self, code, *args):
        """The value of a function of the page's models, state and timelines."""
        return self.page.evaluate(code, *args)

    def settle(self):
        """Waits until what was set is drawn."""
        self.js("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def point(self, task, index=0):
        """Where the middle of a task is on the screen."""
        return self.js(
            """([index, task]) => {
              const line = window.arachne.timelines[index];
              const box = line.canvas.getBoundingClientRect();
              const { start, end, rows } = line.model.tasks;
              const x = line.x((start[task] + end[task]) / 2);
              return [box.left + x, box.top + line.y(rows[task][0] + 0.5)];
            }""",
            [index, task],
        )


def launched():
    """A running browser; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    driver = api.sync_playwright().start()
    # A sandbox of its own is not possible for root in a container.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return driver, driver.chromium.launch(executable_path=found, args=flags)
