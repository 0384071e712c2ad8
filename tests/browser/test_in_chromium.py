"""Each page in a real browser, on a demo-like store and on an empty one."""

import zipfile

import pytest

import workbench as wb
from dashboards.app import GROUPS
from tests.fakes import records
from tests.fakes.foreign_files import FOLDER

pytestmark = pytest.mark.browser
PAGES = ("", "pareto", "run")
LONG = "sglang/llama_3_3_70b_offline_output.jsonl"
EVERY = tuple(name for names in GROUPS.values() for name in names)
RING_IS_AT = """place => {
  const marks = [...document.querySelectorAll(".js-plotly-plot g.points path.point")];
  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const ring = marks.find((mark) => mark.getBoundingClientRect().width > 18);
  if (!ring) return false;
  const [at, wanted] = [middle(ring), middle(marks[place])];
  return Math.hypot(at[0] - wanted[0], at[1] - wanted[1]) < 12;
}"""


@pytest.mark.parametrize("path", PAGES)
def test_a_page_on_the_demo_store_opens_without_an_error(visit, demo_store, path):
    visit(demo_store, path).check()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_on_an_empty_store_names_the_command_that_fills_it(visit, tmp_path_factory, path):
    opened = visit(tmp_path_factory.getbasetemp() / "no-store", path)
    opened.check()
    assert "workbench demo" in opened.page.inner_text("body")


@pytest.mark.parametrize("path", ["", *EVERY[1:]])
def test_a_page_fits_a_phone_in_the_dark(visit, demo_store, path):
    opened = visit(demo_store, path, width=390, scheme="dark")
    opened.check()
    colour = opened.page.evaluate("getComputedStyle(document.querySelector('.stApp')).color")
    assert min(int(part) for part in colour.strip("rgb()").split(",")[:3]) > 180


def test_a_choice_is_told_in_full_where_its_box_is_too_narrow_and_only_there(visit, tmp_path):
    records.fill_store(tmp_path, name="a-plan-whose-name-is-longer-than-a-phone-is-wide")
    page = visit(tmp_path, "pareto").page
    told = page.locator(".stSidebar .wb-cut", has_text="a-plan-whose-name")
    assert told.is_visible()
    box = page.locator(".stSidebar [data-testid=stSelectbox]").first
    assert told.bounding_box()["width"] <= box.bounding_box()["width"] + 1
    wb.import_files([FOLDER / LONG], wb.Store(tmp_path))
    for width, is_shown in ((1280, False), (390, True)):
        opened = visit(tmp_path, "imports", width=width)
        opened.check()
        assert (
            opened.page.locator(".wb-cut", has_text="llama_3_3_70b_offline").is_visible()
            == is_shown
        )


def test_the_first_visit_to_a_fresh_server_may_be_any_page(visit, tmp_path):
    records.fill_store(tmp_path, [records.record()])
    opened = visit(tmp_path, "pareto")
    opened.check()
    assert opened.page.get_by_role("link", name="Overview", exact=True).count() == 1


def test_a_click_on_a_point_leads_to_its_trial(visit, demo_store):
    opened = visit(demo_store, "pareto")
    page = opened.page
    point = page.locator(".js-plotly-plot g.points path.point").last.bounding_box()
    at = (point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.mouse.move(at[0] - 4, at[1] - 4)
    page.mouse.move(*at)
    page.wait_for_selector(".hoverlayer .hovertext")
    hover = page.text_content(".hoverlayer .hovertext")
    page.mouse.click(*at)
    page.wait_for_url("**/pareto?*trial=*")
    trial = page.url.split("trial=")[1].split("&")[0]
    assert f"trial {trial}" in hover
    page.get_by_text("Open this trial").click()
    page.wait_for_url(f"**/run?*trial={trial}*")
    page.get_by_role("heading", name="Gates").wait_for()
    opened.settle()
    assert trial in page.inner_text("body")
    opened.check()


def test_from_a_filter_to_a_trial_to_a_comparison_to_a_report(visit, demo_store):
    opened = visit(demo_store, "pareto")
    page = opened.page
    page.get_by_role("combobox", name="Draft length").click()
    page.get_by_role("option", name="5").click()
    page.get_by_text("12 points hidden by the filters").wait_for()
    opened.settle()
    click_a_point(page)
    page.wait_for_url("**/pareto?*trial=*")
    trial = page.url.split("trial=")[1].split("&")[0]
    page.get_by_text("Compare with…").click()
    page.wait_for_url("**/compare?*")
    page.get_by_role("heading", name="Is B really better than A?").wait_for()
    page.get_by_role("heading", name="Settings that differ").wait_for()
    opened.settle()
    assert trial in page.content()
    assert "chosen to differ" in page.inner_text("body")
    page.goto(page.url.split("/compare")[0] + "/report?formats=md,csv")
    page.get_by_role("heading", name="Preview").wait_for()
    opened.settle()
    with page.expect_download() as download:
        page.get_by_role("button", name="All files (zip)").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert {"report.md", "SHA256SUMS"} <= set(archive.namelist())
    opened.check()


def click_a_point(page):
    point = page.locator(".js-plotly-plot g.points path.point").last.bounding_box()
    at = (point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.mouse.move(*at)
    page.mouse.click(*at)


def test_a_click_on_the_overview_opens_the_trial(visit, demo_store):
    opened = visit(demo_store, "")
    click_a_point(opened.page)
    opened.page.wait_for_url("**/run?*trial=*")
    opened.page.get_by_role("heading", name="Gates").wait_for()
    opened.settle()
    opened.check()


def test_each_tap_selects_the_point_below_it_at_once(visit, demo_store):
    opened = visit(demo_store, "pareto", width=390, touch=True)
    page = opened.page
    assert not page.locator(".js-plotly-plot .modebar-container").is_visible()
    seen = set()
    for place in (0, 3, 9):
        point = page.locator(".js-plotly-plot g.points path.point").nth(place)
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        before = page.url
        page.touchscreen.tap(*at)
        page.wait_for_function("before => location.href !== before", arg=before)
        opened.settle()
        seen.add(page.url.split("trial=")[1])
        page.wait_for_function(RING_IS_AT, arg=place, timeout=15_000)
    assert len(seen) == 3
    opened.check()


def test_a_copied_address_shows_the_same(visit, demo_store):
    opened = visit(demo_store, "pareto?x=ttft_s_p50&draft_length=5&group=")
    body = opened.page.inner_text("body")
    assert "12 points hidden by the filters" in body
    assert "TTFT p50" in opened.page.text_content(".js-plotly-plot .xtitle")
    assert opened.page.locator(".js-plotly-plot .legend").count() == 0
    assert "group=" in opened.page.url
    opened.check()


def test_a_trial_can_be_reached_by_the_keyboard_alone(visit, demo_store):
    page = visit(demo_store, "").page
    for _ in range(40):
        page.keyboard.press("Tab")
        target = page.evaluate("document.activeElement.getAttribute('href') || ''")
        if "trial=" in target:
            break
    assert "trial=" in target
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Metrics").wait_for()


def test_hostile_strings_do_nothing_in_a_browser(visit, tmp_path_factory):
    store = tmp_path_factory.mktemp("hostile")
    run = records.fill_store(store, records.hostile_records(), question=records.HOSTILE[0])
    worst = run.points().query("reason == @records.HOSTILE[0]")["trial_id"].iloc[0]
    for path in (*PAGES, f"run?trial={worst}", f"pareto?trial={worst}&group=workload.name"):
        opened = visit(store, path)
        opened.check()
        assert records.HOSTILE[0] in opened.page.inner_text("body")
        assert opened.page.locator("img[src=x]").count() == 0


def test_a_running_sweep_is_followed_without_a_reload(visit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("running")
    trials = records.sweep_records()
    with wb.Store(folder).create(records.facts(3)) as writer:
        writer.append(trials[0])
        opened = visit(folder, "run")
        opened.page.get_by_text("1 of 3 trials stored").wait_for()
        writer.append(trials[1])
        opened.page.get_by_text("2 of 3 trials stored").wait_for()
        writer.append(trials[2])
    opened.page.get_by_text("3 of 3 trials stored").wait_for()
    opened.page.locator(".wb-pill", has_text="running").wait_for(state="detached")
    opened.settle()
    opened.check()
