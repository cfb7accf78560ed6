"""Headless Chromium with the console: pages opened until they are loaded, their log read, screenshots kept."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver.remote.webelement import WebElement

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1360,1000",
)
PATIENCE = 30.0
SCREENSHOTS = "ORBITMQ_SCREENSHOTS"
"""Environment variable with the folder for screenshots; a temporary one by default."""

# Text on its background, labels of controls, alternative texts, order of headings, unique ids.
ACCESSIBILITY = Path(__file__).with_name("accessibility.js").read_text()

needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="chromium or chromedriver is missing: apt-get install chromium chromium-driver",
)


class Browser:
    """One browser, at the address of a console."""

    def __init__(self, driver: webdriver.Chrome, base: str, folder: Path) -> None:
        self.driver = driver
        self.base = base
        self._folder = folder

    def open(self, path: str) -> None:
        """Open a page, and wait until its content is there."""
        self.driver.get(f"{self.base}{path}")
        self.loaded()

    def loaded(self) -> None:
        self.until(lambda: self.find(".oq-page") and not self.find(".q-spinner"))

    def find(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self) -> str:
        """The visible text of the page."""
        found: str = self.driver.execute_script("return document.body.innerText")
        return found

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition."""

        def holds(_: object) -> bool:
            with contextlib.suppress(StaleElementReferenceException):
                return bool(condition())
            return False

        try:
            WebDriverWait(self.driver, PATIENCE, 0.05).until(holds)
        except TimeoutException:
            self.driver.save_screenshot(str(self._folder / "timeout.png"))
            raise AssertionError(f"not so in {PATIENCE} s: {self.driver.current_url} {self.text()}") from None

    def shows(self, text: str) -> None:
        """Wait until the page has a text."""
        self.until(lambda: text in self.text())

    def button(self, label: str) -> WebElement:
        """The visible button with a text or a label."""
        found: list[WebElement] = []

        def look() -> bool:
            path = f"//button[contains(., '{label}') or starts-with(@aria-label, '{label}')]"
            found[:] = [one for one in self.driver.find_elements(By.XPATH, path) if one.is_displayed()]
            return bool(found)

        self.until(look)
        return found[-1]

    def press(self, label: str) -> None:
        """Press a button, when nothing covers it."""

        def click() -> bool:
            try:
                self.button(label).click()
            except StaleElementReferenceException:
                return False
            except Exception as error:
                if "click intercepted" in str(error):
                    return False
                raise
            return True

        self.until(click)

    def fill(self, label: str, text: str) -> None:
        """Write into the visible field with a label, in place of its text."""

        def write() -> bool:
            path = f"//*[self::input or self::textarea][@aria-label='{label}']"
            fields = [one for one in self.driver.find_elements(By.XPATH, path) if one.is_displayed()]
            if not fields:
                return False
            fields[-1].send_keys(Keys.CONTROL, "a")
            fields[-1].send_keys(text)
            return fields[-1].get_attribute("value") == text

        self.until(write)

    def problems(self) -> list[str]:
        """Errors and warnings of the browser's log since the last call."""
        levels = {"SEVERE", "WARNING"}
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in levels]  # type: ignore[no-untyped-call]

    def violations(self) -> list[str]:
        """Findings of the accessibility check."""
        found: list[str] = self.driver.execute_script(ACCESSIBILITY)
        return found

    def shoot(self, name: str) -> None:
        """Keep a screenshot of the whole page."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (self._folder / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser(base: str) -> Iterator[Browser]:
    """A browser with an empty profile."""
    folder = Path(os.environ.get(SCREENSHOTS) or Path(tempfile.gettempdir()) / "orbitmq-screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        try:
            driver.set_page_load_timeout(PATIENCE)
            yield Browser(driver, base, folder)
        finally:
            driver.quit()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
