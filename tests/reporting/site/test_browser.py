"""Tests of the site in a headless Chromium; skipped, by name, where there is none."""

import functools
import http.server
import threading
import time

import pytest
from browser import AXE, Browser, chromium

pytestmark = [pytest.mark.machine, pytest.mark.process, pytest.mark.slow]
MACHINE = "nvidia-h200"
BIG = f"{MACHINE}/flash_attention.html"
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def folder(driver, site_files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for name, content in site_files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def browser(driver, folder):
    browser = Browser(driver, folder.as_uri())
    browser.faults()
    yield browser
    assert browser.faults() == []


def pages_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))


def wait_for(condition, seconds=20.0):
    """Wait until a condition holds; return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the page did not change in time"
        time.sleep(0.05)
    return found


def column(browser, at):
    """The numbers of a column of the first table, from top to bottom; None without a number."""
    script = """
    const table = document.querySelector("table.sortable");
    return [...table.tBodies[0].rows].filter((row) => !row.hidden)
      .map((row) => row.cells[arguments[0]].dataset.value ?? null);
    """
    return [None if value is None else float(value) for value in browser.run(script, at)]


def test_navigation_reaches_every_page_of_a_machine(browser):
    browser.open("index.html")
    count = len(browser.all("nav a"))
    assert count > 8
    for place in range(count):
        link = browser.all("nav a")[place]
        words = link.text
        link.click()
        assert browser.find("nav a[aria-current]").text == words
        assert browser.find("h1").text
    browser.open("machines.html")
    browser.find(f"a[href='{MACHINE}/index.html']").click()
    assert "NVIDIA H200" in browser.find("h1").text


def test_pages_from_a_web_server_have_no_failed_request(driver, folder):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(driver, f"http://127.0.0.1:{server.server_port}")
        browser.faults()
        for page in pages_of(folder):
            browser.open(page)
            assert browser.faults() == [], page
        server.shutdown()


def test_click_on_a_header_sorts_by_number(browser):
    browser.open(f"{MACHINE}/attention.html")
    heads = browser.all("table.sortable thead tr th")
    at = next(
        n
        for n, value in enumerate(
            browser.run(
                "return [...document.querySelector('table.sortable').tBodies[0].rows[0].cells]"
                ".map((cell) => cell.dataset.low ?? null)"
            )
        )
        if value is not None
    )
    first = column(browser, at)
    heads[at].click()
    down = wait_for(lambda: (now := column(browser, at)) != first and now)
    numbers = [value for value in down if value is not None]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) > 3
    assert None not in down[: len(numbers)], "cells without a number are last"
    heads = browser.all("table.sortable thead tr th")
    heads[at].click()
    up = wait_for(lambda: (now := column(browser, at)) != down and now)
    assert [value for value in up if value is not None] == sorted(numbers)


def test_filter_shows_the_lines_of_one_value_only(browser):
    browser.open(BIG)
    select = browser.find(".filters select")
    choice = browser.run("return arguments[0].options[1].text", select)
    browser.run(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
        select,
        choice,
    )
    shown = browser.run(
        """
        const block = document.querySelector(".filters").parentNode;
        const rows = [...block.querySelectorAll("tbody tr")];
        return [rows.length, rows.filter((row) => row.offsetParent).map((row) => row.innerText)];
        """
    )
    assert 0 < len(shown[1]) < shown[0]
    assert all(choice in text.split("\t") for text in shown[1])
    assert browser.find(".filters [role=status]").text == f"{len(shown[1])} of {shown[0]} lines"


def test_cell_opens_its_measurement_by_mouse_and_by_keyboard(browser):
    from selenium.webdriver.common.keys import Keys

    browser.open(BIG)
    cell = browser.find("td[data-row][data-low]")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", cell)
    cell.click()
    dialog = browser.find("dialog")
    words = dialog.text
    for part in ("interval", "commit", "key of the row", "measured at", "lmperf run ", "--against"):
        assert part in words, part
    assert cell.get_attribute("data-value") in words
    dialog.send_keys(Keys.ESCAPE)
    wait_for(lambda: not dialog.is_displayed())
    region = browser.find(".scroll:has(td[data-row])")
    region.send_keys(Keys.ARROW_DOWN)
    for _ in range(20):
        here = browser.driver.switch_to.active_element
        if here.get_attribute("data-row") is not None:
            break
        here.send_keys(Keys.ARROW_RIGHT)
    here.send_keys(Keys.ENTER)
    assert browser.find("dialog").is_displayed()


def test_dark_scheme_changes_page_and_figures(browser):
    brightness = (
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    figure = "return document.querySelector('figure img').currentSrc"
    browser.open(BIG)
    assert browser.run(brightness) > 200 and browser.run(figure).endswith("-light.svg")
    browser.open(BIG, dark=True)
    assert browser.run(brightness) < 60 and browser.run(figure).endswith("-dark.svg")


def drawn(browser, page, **options):
    """Open a page and wait until its first figure is interactive."""
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    browser.open(page, **options)
    browser.run("document.querySelector('figure').scrollIntoView({block: 'start'})")
    wait_for(lambda: browser.find("figure").get_attribute("data-drawn"))


def test_figure_shows_interval_and_calls_under_the_pointer(browser):
    from selenium.webdriver import ActionChains

    drawn(browser, f"{MACHINE}/lrpe.html")
    assert not browser.find("figure picture").is_displayed()
    mark = browser.find("figure .chart svg g.mark-symbol.role-mark path")
    ActionChains(browser.driver).move_to_element(mark).perform()
    tip = wait_for(lambda: browser.all("#vg-tooltip-element.visible"))[0]
    words = tip.text
    for part in ("interval", " to ", "n", "GB/s", "positions"):
        assert part in words, part


def test_legend_of_a_figure_selects_a_line(browser):
    faint = """
    return [...document.querySelectorAll("figure .chart svg g.mark-symbol.role-mark path")]
      .filter((mark) => Number(mark.getAttribute("opacity")) < 0.5).length;
    """
    drawn(browser, f"{MACHINE}/lrpe.html")
    assert browser.run(faint) == 0
    label = browser.find("figure .chart svg .role-legend-label text")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", label)
    label.click()
    assert wait_for(lambda: browser.run(faint)) > 3


def test_wheel_zooms_a_figure(browser):
    ticks = """
    return [...document.querySelectorAll("figure .chart svg .role-axis-label text")]
      .map((text) => text.textContent).join();
    """
    drawn(browser, f"{MACHINE}/lrpe.html")
    first = browser.run(ticks)
    mark = browser.find("figure .chart svg g.mark-symbol.role-mark path")
    browser.run(
        """
        const at = arguments[0].getBoundingClientRect();
        const svg = document.querySelector("figure .chart svg");
        const event = {deltaY: -300, clientX: at.x, clientY: at.y, bubbles: true, cancelable: true};
        arguments[0].dispatchEvent(new WheelEvent("wheel", event));
        """,
        mark,
    )
    assert wait_for(lambda: browser.run(ticks) != first)


def test_figure_follows_the_colour_scheme(browser):
    drawn(browser, f"{MACHINE}/lrpe.html", dark=True)
    assert browser.find("figure").get_attribute("data-drawn") == "dark"
    assert browser.all("figure .chart svg text[fill='#e6edf3']")


def test_no_page_scrolls_sideways_at_400_pixels(browser, folder):
    for page in pages_of(folder):
        browser.open(page, width=400)
        width = browser.run("return document.documentElement.scrollWidth")
        assert width <= 400, page


def test_page_is_complete_without_scripts(browser):
    browser.open(BIG, scripts=False)
    assert len(browser.all("td")) > 100 and browser.find("figure img").is_displayed()
    assert not browser.all(".filters") and not browser.find(".hint").is_displayed()


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(browser, folder, dark):
    if not AXE.exists():
        pytest.skip("axe-core is not there; .ci/run fetches it")
    for page in pages_of(folder):
        browser.open(page, dark=dark)
        browser.run(AXE.read_text())
        found = browser.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run({resultTypes: ['violations'], preload: false})"
            ".then((made) => done(made.violations))"
        )
        serious = [
            (one["id"], one["help"], one["nodes"][0]["html"][:200])
            for one in found
            if one["impact"] in SERIOUS
        ]
        assert not serious, page
