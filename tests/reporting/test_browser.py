"""The site in a headless Chromium; skipped, by name, where there is none."""

import time

import planted
import pytest
from browser import Browser, chromium

from lmperf.reporting import site

pytestmark = [pytest.mark.process, pytest.mark.slow]
PAGE = "one/mine.html"
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
FIRST = "# Models\n\n[Mine]({{ root }}mine.md)\n"
MINE = """# Mine

{% filter table(rows("attention")) %}
{d_head} {seq_len}
time: {time}
{% endfilter %}

{% set chosen = rows("attention").where(d_head=64).valid %}
{{ line_chart("Lengths", chosen.frame, "seq_len", "ms", ("length", "ms")) }}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def folder(driver, tmp_path_factory):
    """A site with a table of 18 lines, the last of them without a time, and a figure."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "templates").mkdir()
    (folder / "templates" / "report.md.j2").write_text(FIRST)
    (folder / "templates" / "mine.md.j2").write_text(MINE)
    rows = [
        planted.row("attention", 1e-3 * length * width, seq_len=length, d_head=width)
        for width in (32, 64, 128)
        for length in LENGTHS
    ]
    rows[-1] = planted.row("attention", status="oom", seq_len=LENGTHS[-1], d_head=128)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmperf.reporting.pages.page_names", lambda *of: ["mine"])
        made = site.Site([planted.evidence(*rows, machine="one")], folder, folder / "templates")
        files = site.files_of_machine(made, 0) | site.files_of_assets()
    for name, content in files.items():
        (folder / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        (folder / "site" / name).write_bytes(data)
    return folder / "site"


@pytest.fixture
def browser(driver, folder):
    browser = Browser(driver, folder.as_uri())
    browser.faults()
    yield browser
    assert browser.faults() == []


def wait_for(condition):
    """Wait until a condition holds, at most 20 s; return its value."""
    end = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < end, "the page did not change in time"
        time.sleep(0.05)
    return found


def column(browser, at):
    """The texts of a column of the table, from top to bottom, without hidden lines."""
    script = """
    return [...document.querySelector("table.data").tBodies[0].rows].filter((row) => !row.hidden)
      .map((row) => row.cells[arguments[0]].dataset.value ?? row.cells[arguments[0]].textContent);
    """
    return browser.run(script, at)


def test_click_on_a_header_sorts_by_number(browser):
    browser.open(PAGE)
    head = browser.all("table.data th")[2]
    head.click()
    *numbers, last = column(browser, 2)
    assert last.startswith("OOM"), "a cell without a number is last"
    values = [float(value) for value in numbers]
    assert values == sorted(values, reverse=True) and len(values) == 17
    head.click()
    *numbers, last = column(browser, 2)
    assert [float(value) for value in numbers] == values[::-1] and last.startswith("OOM")
    assert head.get_attribute("aria-sort") == "ascending"


def test_filter_shows_the_lines_of_a_value(browser):
    browser.open(PAGE)
    select = browser.find(".filters select")
    select.find_elements("css selector", "option")[2].click()
    assert column(browser, 0) == ["64"] * 6
    assert browser.find(".filters [role=status]").text == "6 of 18 lines"


def test_click_on_a_number_shows_its_measurement(browser):
    browser.open(PAGE)
    browser.find("td[data-row]").click()
    dialog = browser.find("dialog")
    assert dialog.is_displayed()
    for words in ("Attention", "median", "lmperf run --row", "commit"):
        assert words in dialog.text
    browser.find("dialog .close").click()
    assert not dialog.is_displayed()


def test_keys_reach_a_cell_and_open_it(browser):
    from selenium.webdriver import Keys

    browser.open(PAGE)
    browser.find(".scroll").send_keys(Keys.ARROW_DOWN)
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER):
        browser.driver.switch_to.active_element.send_keys(key)
    assert browser.find("dialog").is_displayed()


def drawn(browser, **options):
    """Show the page and wait until its figure is interactive."""
    browser.open(PAGE, **options)
    browser.run("document.querySelector('figure').scrollIntoView({block: 'start'})")
    wait_for(lambda: browser.find("figure").get_attribute("data-drawn"))


def test_figure_shows_its_value_under_the_pointer(browser):
    from selenium.webdriver import ActionChains

    drawn(browser)
    assert not browser.find("figure picture").is_displayed()
    mark = browser.find("figure .chart svg g.mark-symbol.role-mark path")
    ActionChains(browser.driver).move_to_element(mark).perform()
    tip = wait_for(lambda: browser.all("#vg-tooltip-element.visible"))[0]
    assert "8.19 ms" in tip.text


def test_figure_follows_the_colour_scheme(browser):
    drawn(browser, dark=True)
    assert browser.find("figure").get_attribute("data-drawn") == "dark"
    assert browser.all("figure .chart svg text[fill='#e6edf3']")


@pytest.mark.parametrize("page", ["index.html", PAGE])
def test_page_does_not_scroll_sideways_at_400_pixels(browser, page):
    browser.open(page, width=400)
    assert browser.run("return document.documentElement.scrollWidth") <= 400


def test_page_is_complete_without_scripts(browser):
    browser.open(PAGE, scripts=False)
    assert len(browser.all("td")) == 54 and browser.find("figure img").is_displayed()
    assert not browser.all(".filters") and not browser.find(".hint").is_displayed()
