"""A headless Chromium for tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)


@contextmanager
def chromium(profile: Path) -> Iterator:
    """A driver of a headless Chromium; skips the test by name where something is missing.

    profile: a new folder for the profile.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in paths:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(paths[1]))
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """What tests do with a page.

    Attributes:
        driver: of Selenium.
        root: address of the folder of the site.
    """

    def __init__(self, driver, root: str):
        self.driver = driver
        self.root = root

    def open(self, path: str, width: int = 1280, dark: bool = False, scripts: bool = True) -> None:
        """Show a page of the site, in a window and with a colour scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        for command, values in (
            ("Emulation.setDeviceMetricsOverride", size),
            ("Emulation.setEmulatedMedia", {"features": [scheme]}),
            ("Emulation.setScriptExecutionDisabled", {"value": not scripts}),
        ):
            self.driver.execute_cdp_cmd(command, values)
        self.driver.get(f"{self.root}/{path}")

    def find(self, css: str):
        """The first element that a CSS selector finds."""
        return self.driver.find_element("css selector", css)

    def all(self, css: str) -> list:
        return self.driver.find_elements("css selector", css)

    def run(self, script: str, *arguments):
        """The result of JavaScript on the page."""
        return self.driver.execute_script(script, *arguments)

    def faults(self) -> list[str]:
        """Console errors and failed requests since the last call."""
        console = [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return console + [words for event in events if (words := _failed(event))]


def _failed(event: dict) -> str:
    values = event["params"]
    if event["method"] == "Network.loadingFailed" and not values.get("canceled"):
        return f"failed: {values['errorText']}"
    if event["method"] == "Network.responseReceived" and values["response"]["status"] >= 400:
        return f"{values['response']['status']}: {values['response']['url']}"
    return ""
