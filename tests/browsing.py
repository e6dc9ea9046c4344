"""Pages in a real browser (the fixture ``browser`` in conftest.py)."""

import json
import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the first true value of ``condition()``; fail after a while."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the page did not get there"
        time.sleep(0.1)
    return value


def open_afresh(browser: Any, url: str) -> None:
    """Open ``url`` with empty logs."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(url)


def messages(browser: Any, *levels: str) -> list[str]:
    """Return what the console has shown at some levels since `open_afresh`."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in levels]


def requests(browser: Any) -> list[str]:
    """Return the addresses asked since `open_afresh`, without those that name their own content."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("data:", "blob:"))]
