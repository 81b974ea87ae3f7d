"""The pages in a real Chromium: what it makes of them, what it fetches, how wide they are, how they look in the dark."""
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import zlib

import pytest
from text import made_status

from rlrun.text.page import render_runs_page, render_status_page
from rlrun.text.page_style import STYLE

TIMEOUT_SECONDS = 120
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DARK = "--blink-settings=preferredColorScheme=0"
# Widths are asked of the pages in frames: a window of its own is never as narrow as a phone.
FRAMES = """<!DOCTYPE html><meta charset="utf-8"><body>%s<pre id="told"></pre><script>
onload = function () {
  var told = {};
  document.querySelectorAll("iframe").forEach(function (frame) {
    var page = frame.contentDocument, root = page.documentElement, block = page.querySelector("pre");
    var colour = function (name) {
      var found = page.querySelector(name);
      return found && frame.contentWindow.getComputedStyle(found).backgroundColor;
    };
    told[frame.id] = {width: root.scrollWidth, window: frame.contentWindow.innerWidth, page: colour("body"),
                      block: block && [block.scrollWidth, block.clientWidth],
                      svgs: Array.from(page.querySelectorAll(".curve > svg")).map(function (svg) {
                        var box = svg.getBoundingClientRect(); return [box.width, box.height]; })};
  });
  document.getElementById("told").textContent = JSON.stringify(told);
};
</script>"""


@pytest.fixture(scope="session")
def chromium():
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip("no Chromium here: apt-get install chromium, or any of %s on PATH" % ", ".join(NAMES))
    return found


@pytest.fixture
def browse(chromium, tmp_path):
    """browse(option, …) runs Chromium to its end and gives what it wrote to stdout."""
    def run(*options):
        home = tmp_path / ("profile%d" % len(list(tmp_path.glob("profile*"))))
        home.mkdir()
        argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                "--user-data-dir=%s" % home, *options]
        process = subprocess.Popen(argv, env=dict(os.environ, HOME=str(home)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        try:
            output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the group is its own
            process.communicate()
            raise
        assert process.returncode == 0, errors.decode("utf-8", "replace")[-3000:]
        return output.decode("utf-8")
    return run


@pytest.fixture
def serve():
    """serve.pages is what a web server on this machine offers, by path; serve.asked what it was asked for; serve.address."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            body = self.server.pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((body or "").encode("utf-8"))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.pages, server.asked = {}, []
    server.address = "http://127.0.0.1:%d" % server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def make_pages():
    """Every example as a page, by name."""
    pages = {name: render_status_page(getattr(made_status, "make_" + name)(), "9.8.7")
             for name in ("healthy", "sick", "ended", "bare", "big", "hostile")}
    return dict(pages, runs=render_runs_page(made_status.make_runs(), "9.8.7"))


def measure(browse, serve, width, *options):
    """What Chromium tells of every page in a frame of that width, by name."""
    pages = make_pages()
    serve.pages.update({"/" + name: page for name, page in pages.items()})
    serve.pages["/frames"] = FRAMES % "".join('<iframe id="%s" src="/%s" width="%d" height="700"></iframe>' % (name, name, width)
                                              for name in pages)
    dom = browse("--dump-dom", *options, serve.address + "/frames")
    told = json.loads(re.search('<pre id="told">(.*?)</pre>', dom).group(1))
    assert sorted(told) == sorted(pages) and {one["window"] for one in told.values()} == {width}
    return told


def test_it_is_read_as_it_was_meant_and_no_script_runs(browse, serve):
    serve.pages["/hostile"] = render_status_page(made_status.make_hostile(), "9.8.7")
    dom = browse("--dump-dom", serve.address + "/hostile")
    assert "<script" not in dom.lower() and "<img" not in dom.lower() and not re.search(r"<[^>]*\sonerror", dom)
    title = re.search("<title>(.*?)</title>", dom, re.S).group(1)
    assert title != "ran" and title.startswith('&lt;script&gt;document.title="ran"')
    assert [re.sub("<.*>", "", head) for head in re.findall("<h2[^>]*>(.*?)</h2>", dom, re.S)][1:] == [
        "Recommendations", "How it ended", "Progress", "Findings", "Metrics", "Curves", "Last errors in the logs", "Notes",
        "Configuration", "Logs and processes"]
    # Even a script that got in would not run; without the policy it does, which is how we know that this can be seen.
    page = render_status_page(made_status.make_sick(), "9.8.7")
    with_script = page.replace("</main>", "<script>document.title='ran'</script></main>")
    serve.pages["/script"] = with_script
    serve.pages["/control"] = re.sub("<meta http-equiv[^>]*>", "", with_script)
    assert "<title>ran</title>" not in browse("--dump-dom", serve.address + "/script")
    assert "<title>ran</title>" in browse("--dump-dom", serve.address + "/control")


def test_nothing_is_fetched(browse, serve):
    bait = ('<img src="%s/leak"><link rel=stylesheet href="%s/leak"><style>@import "%s/leak";*{background:url(%s/leak)}</style>'
            % ((serve.address,) * 4))

    def spoil(value):
        if isinstance(value, dict):
            return {key: spoil(one) for key, one in value.items()}
        return [spoil(one) for one in value] if isinstance(value, list) else bait if isinstance(value, str) else value
    shape = made_status.make_sick()
    page = render_status_page(dict(spoil(shape), curves=shape["curves"]), bait)
    serve.pages["/page"] = page
    serve.pages["/policy"] = page.replace("</main>", bait + "</main>")
    serve.pages["/control"] = re.sub("<meta http-equiv[^>]*>", "", serve.pages["/policy"])
    for name in ("/page", "/policy"):
        assert 'class="curve"' in browse("--dump-dom", serve.address + name)
    assert set(serve.asked) - {"/favicon.ico"} == {"/page", "/policy"}  # the icon is the browser's own wish
    browse("--dump-dom", serve.address + "/control")
    assert "/leak" in serve.asked


def test_it_fits_a_phone_and_a_desk(browse, serve):
    for width in (360, 1280):
        for name, one in measure(browse, serve, width).items():
            assert one["width"] <= width, (name, one)
            assert all(0.4 * across < high < 0.6 * across for across, high in one["svgs"]), (name, one["svgs"])
            if name == "healthy":
                assert len(one["svgs"]) == 8 and all(220 < across for across, _ in one["svgs"])
                assert (one["block"][0] > one["block"][1]) == (width == 360)  # the configuration scrolls by itself


def test_a_frame_that_is_too_narrow_is_noticed(browse, serve):
    """The measure can fail."""
    assert measure(browse, serve, 90)["healthy"]["width"] > 90


def read_colour(name, scheme):
    """A colour of the style sheet as Chromium tells it: (r, g, b)."""
    found = re.findall("--%s: #([0-9a-f]{6})" % name, STYLE)[0 if scheme == "light" else 1]
    return tuple(int(found[at:at + 2], 16) for at in (0, 2, 4))


def test_light_and_dark(browse, serve, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(render_status_page(made_status.make_healthy(), "9.8.7"), encoding="utf-8")
    for scheme, options in (("light", []), ("dark", [DARK])):
        for one in measure(browse, serve, 700, *options).values():
            assert one["page"] == "rgb(%d, %d, %d)" % read_colour("page", scheme)
        shot = tmp_path / ("%s.png" % scheme)
        browse("--screenshot=%s" % shot, "--window-size=1280,900", *options, page.as_uri())
        width, height, corner = read_png(shot.read_bytes())
        assert (width, height, corner) == (1280, 900, read_colour("page", scheme))


def read_png(data):
    """Width, height and the colour of the first pixel of a PNG of 8 bits a channel."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data[24] == 8 and data[25] in (2, 6)
    at, packed = 8, b""
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    pixels = zlib.decompress(packed)  # the first pixel has no neighbours: whatever the filter, it is itself
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"), tuple(pixels[1:4])


@pytest.mark.parametrize("name", ["healthy", "big", "runs"])
def test_it_can_be_printed(browse, tmp_path, name):
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(make_pages()[name], encoding="utf-8")
    browse("--print-to-pdf=%s" % paper, "--no-pdf-header-footer", DARK, page.as_uri())
    data = paper.read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", data))
    assert data.startswith(b"%PDF") and data.rstrip().endswith(b"%%EOF") and 1 <= pages <= 12
    # Dark as the screen may be, the words are dark, and the paper is white and not the grey of the screen.
    drawn = b"".join(inflate(stream) for stream in re.findall(rb"stream\r?\n(.*?)endstream", data, re.S))
    fills = set(re.findall(rb"[\d.]+ [\d.]+ [\d.]+(?= rg)", drawn))
    assert {write_fill("text", "light"), write_fill("muted", "light"), b"1 1 1"} <= fills
    assert not {write_fill("page", "light"), write_fill("page", "dark"), write_fill("text", "dark")} & fills


def inflate(stream):
    """A stream of a PDF in clear, b"" where it is packed in another way."""
    try:
        return zlib.decompressobj().decompress(stream)
    except zlib.error:
        return b""


def write_fill(name, scheme):
    """A colour of the style sheet as a PDF tells it, `.1059 .1255 .149`."""
    return b" ".join((b"%.4f" % (part / 255)).strip(b"0") for part in read_colour(name, scheme))
