"""One question to a server over HTTP, with an end to it. Owns what can go wrong between the address and the answer.

Nothing here raises for what a server, a network or an address does. Loopback is asked without the environment's
proxies: a proxy elsewhere would answer for its own loopback. urllib is imported in functions: it is slow to load.
"""
import json
import re
import socket
import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

MAX_BODY_BYTES = 1 << 20
MAX_REDIRECTS = 3
_CHUNK_BYTES = 1 << 14
# http://node1:8000/v1   https://[::1]:8000
_URL = re.compile(r"https?://[^/\s]", re.IGNORECASE)
# What a header of the user's, an API key, may hold; http.client raises for the rest, and its words quote the header.
_HEADER = re.compile(r"[\x20-\x7e\xa0-\xff]*\Z")
# 127.0.0.1   127.1; a server that is bound to 0.0.0.0 is often called by that
_LOOPBACK = re.compile(r"(?:.+\.)?localhost\.?\Z|127(?:\.\d{1,3}){1,3}\Z|0\.0\.0\.0\Z|::1?\Z")
_PORTS = {"http": 80, "https": 443}


class Answer(NamedTuple):
    """What came of a question. `how`: "answered" (whatever the status), "refused", "timeout", "unresolved", "failed"."""

    how: str
    status: int  # 0 where it was not answered
    body: bytes  # at most 1 MiB, what is beyond is cut off
    reason: str  # the server's word for the status, else why there is no answer


def ask(url: str, timeout_seconds: float = 5, headers: Optional[Mapping[str, str]] = None) -> Answer:
    """GETs a URL and gives the Answer within `timeout_seconds` altogether, the name's lookup and slow talkers included.

    Only http and https, certificates are checked. Up to 3 redirects are followed on the same host and port; one that
    leads elsewhere is the answer, with its 3xx. An answer that breaks off in the middle is "failed".
    """
    fault = _find_fault(url, headers)
    if fault:
        return Answer("failed", 0, b"", fault)
    deadline = time.monotonic() + timeout_seconds
    opened: List[socket.socket] = []
    answers: List[Answer] = []
    # In a thread, for the system's resolver has no time limit, and http.client only one for each piece that it reads.
    asking = threading.Thread(target=lambda: answers.append(_ask(url, deadline, dict(headers or {}), opened)), daemon=True)
    asking.start()
    asking.join(timeout_seconds)
    if answers:
        return answers[0]
    for one in list(opened):  # so that the thread does not listen on
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
    return Answer("timeout", 0, b"", "no answer within %g s" % timeout_seconds)


def read_models(base_url: str, api_key: str = "", timeout_seconds: float = 5) -> Tuple[Answer, Tuple[str, ...]]:
    """The Answer of an OpenAI-style server's `base_url`/models (the base ends with /v1), and the ids of its models.

    No ids where the answer has not that form: its status and body say what it is. The key is sent and never shown.
    """
    headers = {"Authorization": "Bearer " + api_key} if api_key else None
    answer = ask(base_url.rstrip("/") + "/models", timeout_seconds, headers)
    return answer, _parse_models(answer.body) if answer.how == "answered" and answer.status == 200 else ()


def _parse_models(body: bytes) -> Tuple[str, ...]:
    # {"object": "list", "data": [{"id": "Qwen/Qwen3-0.6B", "object": "model", …}]}
    try:
        data = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return ()
    models = data.get("data") if isinstance(data, dict) else None
    found = [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    return tuple(one for one in found if isinstance(one, str))


def _find_fault(url: str, headers: Optional[Mapping[str, str]] = None) -> str:
    """Why a URL can't be asked; "" where nothing speaks against it."""
    from urllib.parse import urlsplit
    if not _URL.match(url):
        return "not an http:// or https:// address"
    if any(not 32 < ord(letter) < 127 for letter in url):
        return "an address with a space, a control character or a letter that is not ASCII"
    try:
        parts = urlsplit(url)
        if not parts.hostname:
            return "an address without a host"
        if parts.port == 0:
            return "an address with port 0"
    except ValueError as error:  # Invalid IPv6 URL   Port out of range 0-65535
        return str(error)
    if parts.username is not None:
        return "an address with a user name in it"
    if not all(_HEADER.match(value) for value in (headers or {}).values()):
        return "a header with a character that can't be sent"
    return ""


def _ask(url: str, deadline: float, headers: Dict[str, str], opened: List[socket.socket]) -> Answer:
    try:
        for _ in range(MAX_REDIRECTS + 1):
            answer, location = _ask_once(url, deadline, headers, opened)
            following = _follow(url, location) if 300 <= answer.status < 400 else ""
            if not following:
                return answer
            url = following
        return Answer("failed", answer.status, b"", "more than %d redirects" % MAX_REDIRECTS)
    except Exception as error:  # nothing may end in a thread's traceback on the terminal
        return _explain(error)
    finally:
        for one in opened:
            one.close()


def _ask_once(url: str, deadline: float, headers: Dict[str, str], opened: List[socket.socket]) -> Tuple[Answer, str]:
    """The Answer to one request, and where it redirects to."""
    from urllib.parse import urlsplit
    from urllib.request import Request
    request = Request(url, headers=dict({"User-Agent": "rlrun"}, **headers))
    try:
        response: Any = _build_opener(url, deadline, opened).open(request, timeout=max(0.01, deadline - time.monotonic()))
    except Exception as error:
        answer = _explain(error)
        if request.host != urlsplit(url).netloc:  # the proxy's refusal says nothing about the server
            answer = Answer("failed", 0, b"", "the environment's proxy: %s" % answer.reason)
        return answer, ""
    with response:
        status, expected, body = int(response.status), response.length, b""
        try:
            while len(body) < MAX_BODY_BYTES:
                chunk = response.read1(min(_CHUNK_BYTES, MAX_BODY_BYTES - len(body)))
                if not chunk:
                    break
                body += chunk
        except Exception as error:
            return _explain(error)._replace(status=status, body=body), ""
        if expected is not None and len(body) < min(expected, MAX_BODY_BYTES):
            return Answer("failed", status, body, "broke off after %d of %d bytes" % (len(body), expected)), ""
        location = str(response.headers.get("Location") or "")
        return Answer("answered", status, body, _clean(str(response.reason or ""))), location


def _build_opener(url: str, deadline: float, opened: List[socket.socket]) -> Any:
    """An opener that follows no redirect and notes each connection in `opened`, before anything is sent on it."""
    import http.client
    import urllib.request
    from urllib.parse import urlsplit

    class Noted(http.client.HTTPConnection):
        """A connection that can be ended from outside."""

        def connect(self) -> None:
            super().connect()
            opened.append(self.sock.dup())  # TLS takes the descriptor away from the socket
            if time.monotonic() >= deadline:
                raise socket.timeout("timed out")

    class AsItIs(urllib.request.HTTPErrorProcessor):
        """Takes a redirect or an error for the answer that it is."""

        def http_response(self, request: Any, response: Any) -> Any:
            return response
        https_response = http_response

    class Plain(urllib.request.HTTPHandler):
        """http:// over such a connection."""

        def http_open(self, req: Any) -> Any:
            return self.do_open(Noted, req)

    handlers: List[Any] = [AsItIs(), Plain()]
    if hasattr(http.client, "HTTPSConnection"):  # a Python without OpenSSL has none
        class NotedSecure(http.client.HTTPSConnection, Noted):
            """Its connect calls Noted's before it begins with TLS."""

        class Secure(urllib.request.HTTPSHandler):
            """https:// over such a connection, with the default context, which checks certificates."""

            def https_open(self, req: Any) -> Any:
                return self.do_open(NotedSecure, req)
        handlers.append(Secure())
    if _LOOPBACK.match(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _follow(url: str, location: str) -> str:
    """Where a redirect leads if that is on the same server; "" otherwise."""
    from urllib.parse import urljoin, urlsplit
    if not location:
        return ""
    try:
        target = urljoin(url, location)
        if _find_fault(target):
            return ""
        old, new = [(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
                    for parts in (urlsplit(url), urlsplit(target))]
    except ValueError:
        return ""
    return target if new == old else ""


def _explain(error: Any) -> Answer:
    """The Answer that an exception stands for."""
    inner = getattr(error, "reason", None)  # of a URLError; of an SSLError it is a word
    if isinstance(inner, Exception):
        error = inner
    words = _clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    how = "failed"
    if isinstance(error, (socket.timeout, TimeoutError)):
        how = "timeout"
    elif isinstance(error, ConnectionRefusedError):
        how = "refused"
    elif isinstance(error, socket.gaierror):
        how = "unresolved"
    elif type(error).__name__ == "BadStatusLine":
        words = "not HTTP: %s" % words
    return Answer(how, 0, b"", words)


def _clean(text: str) -> str:
    """What a server sent, fit to be shown: printable ASCII, one line, not too long."""
    return "".join(letter if 32 <= ord(letter) < 127 else "?" for letter in text.strip())[:200]
