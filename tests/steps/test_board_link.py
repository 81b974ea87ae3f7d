"""The link's truth on disk, and a board that answers oddly."""
import http.server
import json
import os
import threading

import pytest

from rlrun.steps import board_link, record


@pytest.fixture
def serve(tmp_path):
    """serve(answer) -> port of a board that gives this; what link.json held while it was asked is in `seen`."""
    servers = []
    seen = []

    def start(answer, code=200):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802  (http.server's name)
                path = tmp_path / "record/link.json"
                seen.append(json.loads(path.read_text()) if path.exists() else None)
                self.send_response(code)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *words):
                pass
        servers.append(http.server.HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_address[1]
    start.seen = seen
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def order(tmp_path, port, folder="record"):
    (tmp_path / "served").mkdir(exist_ok=True)
    (tmp_path / "record").mkdir(exist_ok=True)
    (tmp_path / "e.log").write_text("")
    (tmp_path / "launch.log").write_text("=== Launching Harbor verl training ===\ntrain log:     %s\n" % (tmp_path / "e.log"))
    return board_link.LinkOrder("lego", str(tmp_path / "served"), port, str(tmp_path / "launch.log"), str(tmp_path),
                                str(tmp_path / folder) if folder else "")


def test_the_record_tells_of_the_link_before_the_board_is_asked(tmp_path, serve):
    """A keeper that is killed while it asks leaves the truth behind."""
    port = serve(b'[{"name": "e"}]')
    found = board_link.make_link(order(tmp_path, port), lambda: True)
    assert found["state"] == "verified" and os.readlink(found["path"]) == str(tmp_path / "e.log")
    told, = serve.seen
    assert (told["state"], told["reason"], told["path"]) == ("unverified", "not asked yet", found["path"])


def test_a_record_that_can_not_be_written_loses_no_link(tmp_path, serve, monkeypatch):
    def fail(*words):
        raise OSError(28, "full")
    monkeypatch.setattr(record, "write_json", fail)
    assert board_link.make_link(order(tmp_path, serve(b'{"runs": [{"id": "e"}]}')), lambda: True)["state"] == "verified"


@pytest.mark.parametrize("answer", [b"null", b"7", b"{}", b'{"runs": null}', b'{"runs": {"e": 1}}', b'"e"', b"", b"<html>",
                                    b"[" * 100000, b'[null, 7, ["e"], {"name": null}]', b"\xff"], ids=repr)
def test_a_board_that_answers_oddly_is_unverified(tmp_path, serve, answer):
    found = board_link.make_link(order(tmp_path, serve(answer)), lambda: True)
    assert found["state"] == "unverified" and found["reason"] not in ("", "not asked yet") and os.path.islink(found["path"])


@pytest.mark.parametrize("port", [0, 1, 99999, None])
def test_a_port_that_nobody_answers_on_is_unverified(tmp_path, port):
    assert board_link.make_link(order(tmp_path, port, ""), lambda: True)["state"] == "unverified"
