import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text import made_status

from rlrun.text import curves
from rlrun.text.curves import find_span, find_ticks, format_ticks, read_curve
from rlrun.text.markup import format_number
from rlrun.text.page import render_runs_page, render_status_page
from rlrun.text.page_style import STYLE
from rlrun.text.shell import escape_controls

VOID = {"meta", "br", "img", "link", "input", "hr", "base"}
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "div", "header", "main", "footer", "section", "article", "h1", "h2",
            "h3", "p", "dl", "dt", "dd", "ol", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "code",
            "small", "span", "b", "br", "pre", "figure", "figcaption", "blockquote", "svg", "symbol", "use", "g", "path",
            "circle", "rect", "text"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "style", "id", "role", "scope", "colspan", "tabindex",
              "href", "width", "height", "viewbox", "fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin", "d",
              "x", "y", "cx", "cy", "r", "text-anchor", "aria-hidden", "aria-label", "aria-labelledby", "aria-valuemin",
              "aria-valuemax", "aria-valuenow"}
SHAPES = {name: getattr(made_status, "make_" + name) for name in ("healthy", "sick", "ended", "bare", "big", "hostile")}


class Page(HTMLParser):
    """A page read strictly: every element is closed in order. `elements` are (tag, attributes, text within)."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), "an attribute twice in %s" % tag
        self.elements.append([tag, dict(attrs), ""])
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def find(self, tag, **wanted):
        wanted = {name.rstrip("_"): value for name, value in wanted.items()}
        return [one for one in self.elements if one[0] == tag and wanted.items() <= one[1].items()]

    def read_rows(self):
        """The cells of every row of every table, as text."""
        rows = []
        for tag, _, text in self.elements:
            if tag == "tr":
                rows.append([])
            elif tag in ("th", "td"):
                rows[-1].append(text)
        return rows

    def read_section(self, name):
        """The text of a part of the page, spaces folded; "" where it is not there."""
        found = self.find("section", **{"aria-labelledby": name})
        return " ".join(found[0][2].split()) if found else ""


def render(shape):
    page = render_status_page(shape, "9.8.7")
    page.encode("utf-8")
    return Page(page)


def draw(points, span=None):
    curve = read_curve({"key": "k", "points": points})
    return curves.draw_curve(curve, span or find_span([curve]))


def read_path(svg, style):
    """The pieces of a path of that class: lists of (x, y)."""
    found = re.search(r'class="%s" d="([^"]*)"' % style, svg)
    return [[tuple(map(float, pair.replace("h0", "").split())) for pair in piece.split("L")]
            for piece in found.group(1).split("M")[1:]] if found else []


def read_words(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_page_is_one_whole_document_that_asks_for_nothing(name):
    shape = SHAPES[name]()
    text = render_status_page(shape, "9.8.7")
    page = Page(text)
    assert {one[0] for one in page.elements} <= ELEMENTS
    assert {key for one in page.elements for key in one[1]} <= ATTRIBUTES
    assert all(one[1]["href"].startswith("#") for one in page.elements if "href" in one[1])
    assert "default-src 'none'" in page.find("meta", **{"http-equiv": "Content-Security-Policy"})[0][1]["content"]
    assert not re.search(r"url\(|@import|@font-face|//", STYLE)
    assert page.find("html")[0][1]["lang"] == "en" and len(page.find("h1")) == 1
    assert len(text.encode("utf-8")) < 300000


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_it_can_be_heard(name):
    page = render(SHAPES[name]())
    levels = [int(one[0][1]) for one in page.elements if one[0] in ("h1", "h2", "h3")]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in zip(levels, levels[1:]))
    ids = [one[1]["id"] for one in page.elements if "id" in one[1]]
    assert len(ids) == len(set(ids))
    used = {one[1]["href"][1:] for one in page.find("use")} | {one[1]["aria-labelledby"] for one in page.find("section")}
    assert used <= set(ids)
    assert all(one[1].get("scope") in ("col", "row", "rowgroup") for one in page.find("th"))
    pictures = page.find("svg", role="img")
    assert all(one[2].strip() for one in pictures)  # of a picture, the text is its title and its axes
    assert len(page.find("title")) == 1 + len(pictures)
    assert all("aria-hidden" in one[1] or "role" in one[1] or "viewbox" in one[1] for one in page.find("svg"))


def read_colours(text):
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text))


def measure_contrast(one, other):
    """WCAG 2's ratio of two colours."""
    def shine(colour):
        parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    light, dark = sorted((shine(one), shine(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_words_are_readable_in_both_schemes():
    assert round(measure_contrast("#000000", "#ffffff"), 3) == 21
    light = read_colours(STYLE[:STYLE.index("@media")])
    dark = dict(light, **read_colours(STYLE[STYLE.index("@media"):STYLE.index("* {")]))
    assert light["page"] != dark["page"] and len(light) == len(dark) > 15
    for colours in (light, dark, dict(light, page="#ffffff", sunk="#ffffff")):
        pairs = [(text, back) for text in ("text", "muted", "curve", "good", "warn", "bad", "calm")
                 for back in ("page", "card", "sunk")]
        pairs += [(tone, tone + "-tint") for tone in ("good", "warn", "bad", "calm")]
        pairs += [("text", tone + "-tint") for tone in ("good", "warn", "bad", "calm")]
        poor = {pair: measure_contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
        assert {pair: ratio for pair, ratio in poor.items() if ratio < 4.5} == {}


def test_a_healthy_run():
    shape = made_status.make_healthy()
    page = render(shape)
    header = " ".join(page.find("header")[0][2].split())
    for word in (shape["run"]["name"], "train", "Lego-RL", "gpu-node-07", "wei", "3f9c2a71", "2026-11-28 21:04 UTC",
                 "14h 55m ago", "running"):
        assert word in header
    assert page.read_section("verdict") == "Healthy " + shape["conclusion"]
    assert page.find("section", class_="card verdict good") and page.find("title")[0][2].endswith(": healthy")
    progress = page.read_section("progress")
    for words in ("412 of 2000", "20.6 %", "the total from the log's own progress bar", "2.06 of 10", "2.1 min",
                  "the first took 6.5 min",
                  "about 2d 8h", "until 2026-12-01 20:38 UTC", "an estimate: the median of the last ten steps", "42s ago",
                  "step 400", "global_step_400", "19 of the steps between are missing"):
        assert words in progress
    bar = page.find("svg", role="progressbar")[0][1]
    assert (bar["aria-valuenow"], bar["aria-valuemax"]) == ("412", "2000") and page.find("rect")[0][1]["width"] == "20.60%"
    assert page.read_section("findings") == "Findings No known signature matched."
    for part in ("ending", "advice", "errors"):
        assert page.read_section(part) == ""
    block = page.find("pre")[0]
    assert block[2] == shape["configuration"] and block[1]["tabindex"] == "0"
    places = page.read_section("places")
    for words in ("kill -INT -- -31877", "runner 31877 · trainer 34120", "88123 RUNNING", shape["run"]["logs"]["vllm"],
                  shape["run"]["launch_log"], shape["run"]["siblings"][0], shape["run"]["record"]):
        assert words in places
    assert " ".join(page.find("footer")[0][2].split()).startswith("Made at 2026-11-29 12:00:00 UTC by rlrun 9.8.7.")


def test_every_metric_with_its_key_value_mark_and_words():
    shape = made_status.make_sick()
    page = render(shape)
    head, rows = page.read_rows()[0], page.read_rows()[1:]
    assert head == ["Metric", "Value", "Trend", "Judged", "Meaning"]
    assert [row[0] for row in rows if len(row) == 1] == ["reward", "grads", "traj", "val"]
    rows = {row[0]: row[1:] for row in rows if len(row) > 1}
    assert list(rows) == [metric["key"] for metric in shape["metrics"]]
    assert rows["actor/lr"] == ["1e-06at step 131", "actor/lr, last 12 values, from 1e-06 to 1e-06", "ok", "as configured"]
    assert rows["actor/grad_norm"][2:] == ["warning", "NaN at 3 of the last 12 steps"]
    assert rows["training/rollout_actor_probs_pearson_corr"][2] == "bad"
    assert rows["val-core/swe/acc/mean@1"] == ["not told", "", "not judged", "test_freq not reached yet"]
    shape["metrics"][0].update(value="nan", rounded=True)
    shape["metrics"][1].update(label="grad", source="trainer")
    rows = render(shape).read_rows()
    assert rows[2][:2] == ["critic/rewards/meantrain", "NaNat step 131, rounded in the log"]
    assert rows[4][0] == "actor/grad_normgrad \u00b7 trainer"


def test_a_sick_run():
    page = render(made_status.make_sick())
    assert page.read_section("verdict").startswith("Recommend stopping") and page.find("section", class_="card verdict bad")
    findings = page.read_section("findings")
    assert "stop r3:misaligned" in findings and ".log:20417" in findings and "risk env:avalanche" in findings
    assert ".log, byte 9182734" in findings and "No known signature" not in findings
    assert [one[2].split()[0] for one in page.find("li")][:3] == ["kill", "Ask", "rlrun"] and len(page.find("ol")) == 1
    progress = page.read_section("progress")
    assert "steps 1 to 118, steps 101 to 131" in progress and "not complete: " in progress and not page.find("rect")
    assert "NaN at 3 steps, first at step 119; inf at step 124" in page.read_section("curves")
    assert "ErrImagePull" in page.read_section("errors")


@pytest.mark.parametrize("how, tone", [("ended well", "good"), ("ended early", "warn"), ("failed", "bad"), ("killed", "bad"),
                                       ("died without trace", "bad"), ("ended", "calm"), ("who knows", "calm")])
def test_how_it_ended(how, tone):
    shape = made_status.make_ended()
    shape["ending"]["how"] = how
    page = render(shape)
    assert page.find("section", class_="card verdict " + tone)
    ending = page.read_section("ending")
    for words in (how, "Exit status1", "torch.OutOfMemoryError", ".log:6120"):
        assert words in ending
    assert "rlrun explain memory" not in ending, "the advice stands under Recommendations alone"


def test_next_to_nothing_is_known():
    page = render(made_status.make_bare())
    assert [one[2] for one in page.find("h2")] == ["No step yet", "Progress"]
    assert "nodes 1 of 3" in page.read_section("progress") and not page.find("table")
    Page(render_status_page({}, ""))
    Page(render_runs_page({}, ""))


def test_nothing_of_a_hostile_text_is_markup():
    text = render_status_page(made_status.make_hostile(), made_status.NASTY)
    page = Page(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", text)
    assert text.count("<script") == 0 and page.find("pre")[0][2].startswith('<script>document.title="ran"</script>"\'&<img')
    assert "\\x00\\x1b[31m\\u202eabc\\u2066\\ud800\\x85" in page.find("h1")[0][2]
    assert len(page.find("title")[0][2]) > len(made_status.NASTY)
    index = Page(render_runs_page({"root": made_status.NASTY, "time": made_status.NASTY, "runs": [
        {key: made_status.NASTY for key in made_status.make_row("x", 1)}]}, made_status.NASTY))
    assert {one[0] for one in index.elements} <= ELEMENTS and {key for one in index.elements for key in one[1]} <= ATTRIBUTES


@given(st.text(st.characters()))
def test_any_text_is_text(text):
    shape = made_status.make_bare()
    shape["conclusion"] = text
    shape["notes"] = [text]
    page = render(shape)
    assert page.find("li")[0][2] == escape_controls(text)


NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from(["nan", "inf", "-inf"]))


@given(st.lists(st.tuples(st.integers(0, 10 ** 7), NUMBERS), max_size=40))
def test_any_curve_stays_in_its_frame(points):
    svg = draw(points, (0, 10 ** 7)) if points else ""
    for piece in read_path(svg, "line") + read_path(svg, "dots"):
        for x, y in piece:
            assert 20 <= x <= 348.1 and 9.9 <= y <= 150.1
    assert "nan" not in re.sub("<title>.*</title>", "", svg).lower() and len(svg) < 20000
    assert bool(svg) == bool(points)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), st.integers(2, 8))
def test_ticks_lie_between_and_differ(one, other, count):
    low, high = sorted((one, other))
    ticks = find_ticks(low, high, count)
    slack = (high / 2 - low / 2) * 1e-6
    assert 1 <= len(ticks) <= 3 * count + 2 and all(low / 2 - slack <= tick / 2 <= high / 2 + slack for tick in ticks)
    if 1e-12 * max(abs(low), abs(high)) < high - low < math.inf:
        words = format_ticks(ticks)
        assert len(set(words)) == len(words)


@pytest.mark.parametrize("low, high, words", [
    (0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]), (-3, 11, ["0", "5", "10"]),
    (0.9985, 0.9997, ["0.9985", "0.9990", "0.9995"]),
    (1e-7, 4.2e-6, ["1e-06", "2e-06", "3e-06", "4e-06"]), (0, 3.1e9, ["0", "1e+09", "2e+09", "3e+09"]),
    (0, 43000, ["0", "10000", "20000", "30000", "40000"]),
    (-2.5e300, 1.1e300, ["-2e+300", "-1e+300", "0", "1e+300"]), (-1.7e308, 1.7e308, ["-1.7e+308", "1.7e+308"])])
def test_ticks_are_round(low, high, words):
    assert format_ticks(find_ticks(low, high, 4)) == words


def test_a_gap_where_steps_are_missing():
    assert [len(piece) for piece in read_path(draw([[step, step] for step in (1, 2, 3, 7, 8, 9)]), "line")] == [3, 3]
    assert [len(piece) for piece in read_path(draw([[step, step] for step in (10, 20, 30, 40)]), "line")] == [4]  # at each tenth
    svg = draw([[1, 1], [2, 2], [3, 3], [20, 4]])
    assert len(read_path(svg, "line")) == 1 and len(read_path(svg, "dots")) == 1
    # also where it is thinned
    svg = draw([[step, math.sin(step)] for step in range(2000) if not 900 <= step < 960])
    assert len(read_path(svg, "line")) == 2


def test_what_is_no_number_is_marked_and_breaks_the_line():
    svg = draw([[1, 1.0], [2, 2.0], [3, "nan"], [4, 2.0], [5, 3.0], [6, "inf"], [7, "-inf"], [8, float("nan")]])
    assert [len(piece) for piece in read_path(svg, "line")] == [2, 2]
    assert len(re.search('class="odd" d="([^"]*)"', svg).group(1).split("z")) == 3 and "NaN at 2 steps, first at step 3" in svg
    only = draw([[1, "nan"], [2, "nan"]])
    assert 'class="odd"' in only and not read_path(only, "line") and "NaN at 2 steps" in only


def test_one_point_is_a_dot_and_a_constant_a_line_in_the_middle():
    svg = draw([[7, 0.25]])
    assert len(read_path(svg, "dots")) == 1 and not read_path(svg, "line") and read_words(svg) == ["0.25", "step", "7"]
    assert "0.25 at step 7, the only value" in svg
    svg = draw([[step, 1e-06] for step in range(1, 31)])
    assert {y for _, y in read_path(svg, "line")[0]} == {80.0} and read_words(svg)[0] == "1e-06" and "ring" not in svg


def test_a_thinned_curve_keeps_its_extremes_and_ends():
    points = [[step, math.sin(step / 9.0)] for step in range(1, 2001)]
    points[777][1], points[1234][1] = 40.0, -30.0
    svg = draw(points)
    (line,) = read_path(svg, "line")
    assert len(line) <= 4 * 151 < len(points)
    rings = [(float(x), float(y)) for x, y in re.findall(r'class="ring" cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert {min(line, key=lambda pair: pair[1]), max(line, key=lambda pair: pair[1])} == set(rings) and len(rings) == 2
    assert line == sorted(line, key=lambda pair: pair[0]) and line[-1][0] == 348.0


def test_the_steps_are_shared_and_whole():
    figures = re.findall(r'<figure class="curve">.*?</figure>', render_status_page(made_status.make_healthy(), ""), re.S)
    axes = [re.findall(r'text-anchor="(?:middle)">(\d+)<', figure) for figure in figures]
    assert len(figures) == 8 and axes == [["100", "200", "300", "400"]] * 8  # of the validation too, which begins at 20
    assert read_words(draw([[3, 1], [4, 2]]))[-2:] == ["3", "4"]


@pytest.mark.parametrize("value, words", [(None, "not told"), (float("nan"), "NaN"), (math.inf, "inf"), (1e-6, "1e-06"),
                                          (0.0, "0"), (-3.0, "-3"),
                                          (0.1234567, "0.123457"), (16843.123, "16843.1"), (123456789.0, "123456789"),
                                          (2e12, "2e+12")])
def test_numbers(value, words):
    assert format_number(value) == words


def test_the_index_of_runs():
    shape = made_status.make_runs()
    text = render_runs_page(shape, "9.8.7")
    page = Page(text)
    assert len(page.find("tr", role="row")) == 1 + len(shape["runs"])
    tones = re.findall(r'<td role="cell"><span class="(\w+)"><svg.*?</svg>([^<]*)', text)
    assert tones == [("calm", "running"), ("good", "ended 0"), ("bad", "ended 1"), ("bad", "killed by SIGKILL"), ("warn", "lost"),
                     ("calm", "elsewhere (gpu-node-09)"), ("bad", "job 88123 out_of_memory"), ("good", "job 88001 completed"),
                     ("calm", "not started"), ("warn", "unreadable")]
    table = " ".join(page.find("table")[0][2].split())
    for words in ("14h 55m ago", "eval_swe.env", "alice", "2 of it live", "name not told", "unknown",
                  shape["runs"][0]["train_log"], shape["runs"][0]["launch_log"], "10 launches, the newest first"):
        assert words in table
    assert re.search(r"Made at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC by rlrun 9.8.7", page.find("footer")[0][2])
    assert "2026-11-29 12:00:00 UTC" in render_runs_page(dict(shape, time="2026-11-29T12:00:00Z"), "")
    assert "No launch is recorded here." in render_runs_page({"root": "/r", "runs": []}, "")


def test_a_page_is_known_again_by_its_beginning():
    """A second `--html` of that name writes over it, and over nothing else."""
    for text in (render_status_page(made_status.make_healthy(), "9.8.7"), render_status_page(made_status.make_hostile(), "9.8.7"),
                 render_runs_page(made_status.make_runs(), "9.8.7")):
        assert b'<meta name="generator" content="rlrun">' in text.encode("utf-8")[:4096]
