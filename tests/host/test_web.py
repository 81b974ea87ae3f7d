"""Questions over HTTP: real sockets on loopback, among them servers that misbehave."""
import http.server
import json
import socket
import threading

import pytest

from rlrun.host import web
from rlrun.host.web import Answer

LONG = 60  # a limit that no test is to reach


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with what the server's `pages` hold: path -> (status, headers, body); keeps what it was asked."""

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        status, headers, body = self.server.pages.get(self.path, (404, {}, b"no such page"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:  # a body that the other side did not read to its end
            pass

    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(pages):
        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        server.pages, server.asked = pages, []
        server.url = "http://127.0.0.1:%d" % server.server_address[1]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def raw():
    """A server that does `talk(connection)` with whoever comes; gives its URL."""
    listeners, done = [], threading.Event()

    def start(talk):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        listeners.append(listener)

        def accept():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        pass
        threading.Thread(target=accept, daemon=True).start()
        return "http://127.0.0.1:%d/" % listener.getsockname()[1]
    start.done = done
    yield start
    done.set()
    for listener in listeners:
        listener.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def find_closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_an_answer(serve):
    server = serve({"/health": (200, {}, b"fine"), "/bad": (503, {"Content-Length": "4"}, b"busy")})
    assert web.ask(server.url + "/health", LONG) == Answer("answered", 200, b"fine", "OK")
    assert web.ask(server.url + "/bad", LONG) == Answer("answered", 503, b"busy", "Service Unavailable")
    assert web.ask(server.url, LONG) == Answer("answered", 404, b"no such page", "Not Found")
    assert web.ask(server.url.upper() + "/health", LONG, {"X-Key": "7"}).status == 200
    assert server.asked[-1][1]["X-Key"] == "7" and server.asked[-1][1]["User-Agent"] == "rlrun"


def test_a_body_is_cut_at_its_limit(serve):
    server = serve({"/": (200, {}, b"x" * (web.MAX_BODY_BYTES + 1)), "/all": (200, {}, b"y" * web.MAX_BODY_BYTES)})
    assert web.ask(server.url + "/", LONG).body == b"x" * web.MAX_BODY_BYTES
    assert web.ask(server.url + "/all", LONG).body == b"y" * web.MAX_BODY_BYTES


def test_nobody_listens():
    assert web.ask("http://127.0.0.1:%d/" % find_closed_port(), LONG) == Answer("refused", 0, b"", "Connection refused")


def test_a_name_that_is_unknown(monkeypatch):
    def fail(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert web.ask("http://node77:8000/", LONG) == Answer("unresolved", 0, b"", "Name or service not known")


def test_a_lookup_that_hangs_ends_with_the_question(monkeypatch):
    go_on = threading.Event()

    def hang(*args, **options):
        go_on.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "late")
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    assert web.ask("http://node77:8000/", 0.2) == Answer("timeout", 0, b"", "no answer within 0.2 s")
    go_on.set()


def test_a_server_that_never_answers(raw):
    assert web.ask(raw(lambda connection: raw.done.wait()), 0.2).how == "timeout"


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: ", b""])
def test_a_server_that_drips_does_not_hold_us_and_is_hung_up_on(raw, start):
    is_hung_up = threading.Event()

    def drip(connection):
        try:
            connection.sendall(start)
            while not raw.done.wait(0.02):
                connection.sendall(b"H")
        except OSError:
            is_hung_up.set()
    assert web.ask(raw(drip), 0.5).how == "timeout"
    assert is_hung_up.wait(LONG)


def test_a_server_that_hangs_up(raw):
    def close(connection):
        connection.recv(1000)
    answer = web.ask(raw(close), LONG)
    assert answer.how == "failed" and answer.status == 0 and answer.reason


def test_a_server_that_speaks_something_else(raw):
    def greet(connection):
        connection.recv(1000)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\x1b[31m\r\n\r\n")
    answer = web.ask(raw(greet), LONG)
    assert answer == Answer("failed", 0, b"", "not HTTP: SSH-2.0-OpenSSH_9.2?[31m")


@pytest.mark.parametrize("sent, body", [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", b"abc"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", b"abc")])
def test_an_answer_that_breaks_off(raw, sent, body):
    def talk(connection):
        connection.recv(1000)
        connection.sendall(sent)
    answer = web.ask(raw(talk), LONG)
    assert (answer.how, answer.status, answer.body) == ("failed", 200, body) and answer.reason


def test_chunks(raw):
    def talk(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert web.ask(raw(talk), LONG) == Answer("answered", 200, b"abcde", "OK")


def test_tls_where_none_is_spoken(serve):
    answer = web.ask(serve({}).url.replace("http:", "https:") + "/", LONG)
    assert answer.how == "failed" and answer.reason


def test_tls_that_never_begins(raw):
    assert web.ask(raw(lambda connection: raw.done.wait()).replace("http:", "https:"), 0.2).how == "timeout"


@pytest.mark.parametrize("url, reason", [
    ("localhost:8000/v1", "http://"), ("file:///etc/passwd", "http://"), ("", "http://"), ("http://", "http://"),
    ("http:///v1", "http://"), ("ftp://h/", "http://"), ("http://[::1", "IPv6"), ("http://h:99999/", "ort"),
    ("http://h:0/", "port 0"), ("http://h:x/", "x"), ("http://h:-1/", "ort"), ("http://h/a b", "space"),
    ("http://h/\r\nX: 1", "control"), ("http://hürde/", "ASCII"), ("http://u:secret@h/", "user name"), ("http://:8/", "host"),
    ("http://%s/" % ("a" * 70), ""), ("http://a..b/", ""), ("http://?x", "host")])
def test_addresses_that_are_none(url, reason):
    answer = web.ask(url, LONG)
    assert answer.how in ("failed", "unresolved") and answer.status == 0 and answer.reason
    assert reason in answer.reason and "secret" not in answer.reason


def test_a_header_that_can_not_be_sent():
    answer, models = web.read_models("http://127.0.0.1:1/v1", "sk-secret\n")
    assert answer.how == "failed" and "secret" not in answer.reason and not models


def test_redirects_on_the_same_server_are_followed(serve):
    server = serve({"/a": (301, {"Location": "/b"}, b""), "/b": (302, {"Location": "c?d=1"}, b""), "/c?d=1": (200, {}, b"here")})
    assert web.ask(server.url + "/a", LONG).body == b"here"


def test_redirects_to_elsewhere_are_the_answer(serve):
    other = serve({"/": (200, {}, b"secret")})
    pages = {"/a": other.url + "/", "/b": "file:///etc/passwd", "/c": "http://[::1", "/d": "", "/e": "http://h:x/",
             "/f": other.url.replace("http:", "https:")}
    server = serve({path: (302, {"Location": location}, b"moved") for path, location in pages.items()})
    for path in pages:
        assert web.ask(server.url + path, LONG) == Answer("answered", 302, b"moved", "Found")
    assert not other.asked


def test_redirects_end(serve):
    server = serve({"/": (302, {"Location": "/"}, b"")})
    answer = web.ask(server.url + "/", LONG)
    assert answer == Answer("failed", 302, b"", "more than 3 redirects") and len(server.asked) == 4


def test_loopback_is_not_asked_through_a_proxy(serve, monkeypatch):
    proxy, server = serve({}), serve({"/": (200, {}, b"own")})
    monkeypatch.setenv("http_proxy", proxy.url)
    assert web.ask(server.url + "/", LONG).body == b"own"
    assert web.ask(server.url.replace("127.0.0.1", "localhost") + "/", LONG).body == b"own"
    assert web.ask(server.url.replace("127.0.0.1", "0.0.0.0") + "/", LONG).body == b"own"
    assert not proxy.asked


def test_others_are_asked_through_the_proxy(serve, monkeypatch):
    proxy = serve({"http://node1.example:8000/v1": (200, {}, b"by proxy")})
    monkeypatch.setenv("http_proxy", proxy.url)
    assert web.ask("http://node1.example:8000/v1", LONG).body == b"by proxy"


def test_a_refusing_proxy_is_no_refusing_server(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:%d" % find_closed_port())
    answer = web.ask("http://node1.example:8000/", LONG)
    assert answer == Answer("failed", 0, b"", "the environment's proxy: Connection refused")


@pytest.mark.parametrize("host, is_loopback", [
    ("localhost", True), ("a.localhost", True), ("127.0.0.1", True), ("127.1", True), ("::1", True), ("0.0.0.0", True),
    ("127.example.org", False), ("localhost.example.org", False), ("notlocalhost", False), ("10.0.0.1", False), ("", False)])
def test_what_is_loopback(host, is_loopback):
    assert bool(web._LOOPBACK.match(host)) == is_loopback


def test_models(serve):
    body = json.dumps({"object": "list", "data": [{"id": "Qwen/Qwen3-0.6B"}, {"id": "lora"}, {"id": 5}, "x"]}).encode()
    server = serve({"/v1/models": (200, {}, body)})
    answer, models = web.read_models(server.url + "/v1/", "sk-1", LONG)
    assert answer.status == 200 and models == ("Qwen/Qwen3-0.6B", "lora")
    assert server.asked[0][1]["Authorization"] == "Bearer sk-1"
    assert web.read_models(server.url + "/v1", timeout_seconds=LONG)[1] and "Authorization" not in server.asked[1][1]


@pytest.mark.parametrize("status, body", [
    (401, b'{"data": [{"id": "x"}]}'), (200, b"<html>"), (200, b"[1]"), (200, b'{"data": 5}'), (200, b"\xff"),
    (200, b"[" * 100000)])
def test_no_models(serve, status, body):
    answer, models = web.read_models(serve({"/v1/models": (status, {}, body)}).url + "/v1", timeout_seconds=LONG)
    assert models == () and answer == Answer("answered", status, body, answer.reason)


def test_no_server_has_no_models():
    answer, models = web.read_models("http://127.0.0.1:%d/v1" % find_closed_port(), timeout_seconds=LONG)
    assert answer.how == "refused" and models == ()
