"""The pages in headless Chromium: every page opened, the main actions done once, no error in the browser's log."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.keys import Keys

from orbitmq.admin import SyncAdminClient
from support.dashboard.browser import Browser, browser, needs_chromium, wait_for
from support.dashboard.demo_cluster import MARKUP, MARKUP_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.dashboard.demo_cluster import DemoCluster

pytestmark = needs_chromium


@contextlib.contextmanager
def console(name_server: str, home: Path, *options: str) -> Iterator[tuple[str, str]]:
    """A console as its own process: its address, and the password of its first user."""
    with (home / "errors").open("w") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "orbitmq", "dashboard", "-n", f"demo={name_server}", "--port", "0"),
                *("--data", str(home / "console"), "--history-size", "2", "--until-eof", *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "HOME": str(home)},
        )
    assert process.stdout is not None
    try:
        address = password = ""
        while not address or (not password and "--no-login" not in options):
            line = process.stdout.readline()
            assert line, (home / "errors").read_text()
            address = address or _found(r"(http://\S+)", line)
            password = password or _found(r"password (\S+)", line)
        yield address, password
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in (home / "errors").read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        process.stdout.close()


def _found(pattern: str, line: str) -> str:
    found = re.search(pattern, line)
    return "" if found is None else found[1]


@pytest.fixture(scope="module")
def page(demo: DemoCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that has signed in as the first user."""
    home = tmp_path_factory.mktemp("home")
    offsets = home / "query" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchTimestampMs": 1}\n{"orders": {"broker-a": {"0": 3}}}')
    with (
        console(demo.name_server, home, "--pipeline", f"a-checkpoint={home}/query") as (address, password),
        browser(address) as found,
    ):
        found.driver.get(f"{address}/c/demo/topics")
        assert "/login?next=/c/demo/topics" in found.driver.current_url
        assert found.violations() == []
        found.shoot("login")
        for name, text in (("user", "admin"), ("password", password)):
            found.find(f"#{name}")[0].send_keys(text)
        found.find("button")[0].click()
        found.until(lambda: found.driver.current_url.endswith("/c/demo/topics"))
        found.loaded()
        assert found.problems() == []
        yield found


def pages(demo: DemoCluster) -> dict[str, tuple[str, str]]:
    """By name: the path of a page, and a text that it has when it is complete."""
    return {
        "overview": ("/c/demo/overview", "healthy"),
        "brokers": ("/c/demo/brokers", "broker-b"),
        "broker": (f"/c/demo/brokers/{demo.brokers[0]}", "Messages per second"),
        "name-servers": ("/c/demo/name-servers", demo.name_server),
        "events": ("/c/demo/events", "consumer join"),
        "topics": ("/c/demo/topics", "payments"),
        "topic": ("/c/demo/topics/orders", "broker-b"),
        "groups": ("/c/demo/groups", "refunds"),
        "group": ("/c/demo/groups/billing", "subscriptions agree"),
        "clients": ("/c/demo/clients", "PYTHON"),
        "messages": ("/c/demo/messages?topic=orders", "order-39"),
        "message": (f"/c/demo/messages/{demo.message_id}?topic=orders", "consumed"),
        "dead-letters": ("/c/demo/dead-letters", "refunds"),
        "dead-letters-of-group": ("/c/demo/dead-letters/refunds", "refused"),
        "deferred": ("/c/demo/deferred", "payments"),
        "pipelines": ("/c/demo/pipelines", "a-checkpoint"),
        "jobs": ("/console/jobs", "No job has run"),
        "audit": ("/console/audit", "sign in"),
        "users": ("/console/users", "admin"),
        "password": ("/console/password", "Current password"),
        "api": ("/console/api", "/api/v1/clusters"),
    }


def test_every_page_opens_without_an_error_and_is_accessible(page: Browser, demo: DemoCluster) -> None:
    for name, (path, text) in pages(demo).items():
        page.open(path)
        page.shows(text)
        page.shoot(name)
        assert page.problems() == [], name
        assert page.violations() == [], name


def test_pages_are_dark_and_fit_a_phone(page: Browser, demo: DemoCluster) -> None:
    page.driver.add_cookie({"name": "orbitmq_theme", "value": "dark", "path": "/"})
    try:
        for name in ("overview", "topics", "group", "message", "messages"):
            page.open(pages(demo)[name][0])
            page.until(lambda: page.find("body.body--dark"))
            page.shoot(f"{name}-dark")
            assert page.violations() == [], name
        page.driver.set_window_size(412, 900)
        for name in ("overview", "topics", "group", "messages"):
            page.open(pages(demo)[name][0])
            page.shoot(f"{name}-phone")
            width = page.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert width <= 0, f"{name} scrolls sideways by {width} pixels"
    finally:
        page.driver.set_window_size(1360, 1000)
        page.driver.delete_cookie("orbitmq_theme")
    assert page.problems() == []


def test_markup_in_names_and_messages_is_text(page: Browser, demo: DemoCluster) -> None:
    with SyncAdminClient(demo.name_server) as admin:
        message = admin.messages.by_key("orders", "markup")[0]
    page.open("/c/demo/messages?topic=orders")
    page.shows("<script>window.hacked=1</script>")
    page.open(f"/c/demo/messages/{message.message_id}?topic=orders")
    page.shows(MARKUP)
    page.open("/c/demo/topics")
    link = page.driver.find_element("link text", MARKUP_TOPIC)
    page.shoot("topics-markup")
    link.click()
    page.until(lambda: "/topics/%3Cscript" in page.driver.current_url)
    page.loaded()
    page.shows(MARKUP_TOPIC)
    for path in ("/c/demo/clients", "/c/demo/groups/refunds", "/c/demo/events"):
        page.open(path)
        page.shows(MARKUP)
    assert page.driver.execute_script("return window.hacked === undefined")


def test_a_topic_is_created_filled_found_and_deleted(page: Browser, demo: DemoCluster) -> None:
    page.open("/c/demo/topics")
    page.press("Create topic")
    page.fill("Name", "made-by-hand")
    page.fill("Queues on each broker", "2")
    page.press("Continue")
    page.shows("topic made-by-hand at broker-b: write queues = 2")
    page.shoot("topic-create")
    page.press("Apply")
    page.until(lambda: page.driver.current_url.endswith("/topics/made-by-hand"))
    page.loaded()
    page.press("Send")
    page.fill("Body", "by hand")
    page.fill("Keys", "hand-1")
    page.shoot("topic-send")
    dialog = page.find(".oq-dialog")[-1]
    dialog.find_elements("tag name", "button")[-1].click()
    page.shows("Sent: ")
    page.open("/c/demo/messages?topic=made-by-hand&key=hand-1")
    page.shows("by hand")
    page.open("/c/demo/topics/made-by-hand")
    page.press("Delete")
    page.fill("Type made-by-hand to confirm", "made-by-hand")
    page.shoot("topic-delete")
    page.press("Apply")
    page.until(lambda: page.driver.current_url.endswith("/c/demo/topics"))
    with SyncAdminClient(demo.name_server) as admin:
        wait_for(lambda: "made-by-hand" not in admin.topics.names())
    page.open("/console/audit")
    page.shows("delete topic")
    assert page.problems() == []


def test_a_group_is_reset_and_a_member_looked_into(page: Browser, demo: DemoCluster) -> None:
    page.open("/c/demo/groups/billing")
    page.press("Running info of")
    page.shows("Stacks of its threads")
    page.shoot("member")
    page.press("Close")
    page.open("/c/demo/groups/billing")
    page.press("Reset offsets")
    page.press("Continue")
    page.shows("queue 0:")
    page.shoot("group-reset")
    page.press("Reset")
    page.shows("The offsets are reset")
    page.open("/console/audit")
    page.shows("reset offsets")
    assert page.problems() == []


def test_a_dead_letter_is_sent_again_and_a_setting_changed(page: Browser, demo: DemoCluster) -> None:
    page.open("/c/demo/dead-letters/refunds")
    page.press("Resend all of these")
    page.shows("to payments")
    page.press("Resend")
    page.shows("The dead letters stay where they are")
    page.open(f"/c/demo/brokers/{demo.brokers[0]}")
    page.find(".q-tab")[2].click()
    page.press("Change a setting")
    page.fill("Name", "maxMessageSize")
    page.fill("Value", "4194306")
    page.press("Continue")
    page.shows("maxMessageSize 4194304 -> 4194306")
    page.shoot("broker-setting")
    page.press("Apply")
    with SyncAdminClient(demo.name_server) as admin:
        wait_for(lambda: admin.brokers.settings(demo.brokers[0])["maxMessageSize"] == "4194306")
    assert page.problems() == []


def test_the_keyboard_reaches_navigation_search_and_dialogs(page: Browser) -> None:
    page.open("/c/demo/topics")
    seen = set()
    for _ in range(40):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        active = page.driver.switch_to.active_element
        seen.add(active.get_attribute("aria-label") or active.text.split("\n")[-1])
    assert {"Navigation", "Overview", "Groups", "Search topics", "orders"} <= seen
    assert "Create topic" in seen


def test_an_ended_session_leads_to_the_sign_in(page: Browser) -> None:
    page.open("/c/demo/topics")
    page.press("admin")
    page.until(lambda: page.find(".q-menu .q-item"))
    page.find(".q-menu .q-item")[-1].click()
    page.until(lambda: "/login" in page.driver.current_url)
    page.driver.get(f"{page.base}/c/demo/topics")
    assert "/login" in page.driver.current_url
