"""Anchors on a web server, against a real one that can be told to misbehave."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lapwing.errors import BadParameter, Tampered, Unavailable
from lapwing.ledger import remote_anchors as anchor_url
from lapwing.ledger.anchors import Mark
from lapwing.ledger.remote_anchors import UrlAnchor
from support.marks import head, mark

Answer = Callable[["_Handler"], None]


@dataclass
class Shelf:
    """What the server keeps, and how it behaves."""

    url: str = ""
    text: bytes | None = None
    gives_etag: bool = True
    weak_etag: bool = False
    on_get: Answer | None = None
    on_put: Answer | None = None
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.text or b"").hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def shelf(self) -> Shelf:
        return self.server.shelf  # type: ignore[attr-defined, no-any-return]

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        shelf = self.shelf
        with shelf.one_at_a_time:
            shelf.seen.append(("GET", dict(self.headers)))
            if shelf.on_get:
                shelf.on_get(self)
            elif shelf.text is None:
                self.reply(404, b"not yet")
            elif shelf.gives_etag:
                self.reply(200, shelf.text, ETag=("W/" if shelf.weak_etag else "") + shelf.etag)
            else:
                self.reply(200, shelf.text)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        shelf = self.shelf
        with shelf.one_at_a_time:
            shelf.seen.append(("PUT", dict(self.headers)))
            wanted, none = self.headers.get("If-Match"), self.headers.get("If-None-Match")
            strong = shelf.gives_etag and not shelf.weak_etag
            if shelf.on_put:
                shelf.on_put(self)
            elif (wanted and (not strong or wanted != shelf.etag)) or (none and shelf.text is not None):
                self.reply(412)
            else:
                created = shelf.text is None
                shelf.text = body
                self.reply(201 if created else 204)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        pass


def serve(shelf: Shelf) -> Iterator[Shelf]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = False  # closing waits for all of them
    server.shelf = shelf  # type: ignore[attr-defined]
    shelf.url = f"http://127.0.0.1:{server.server_port}/visits"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield shelf
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    yield from serve(Shelf())


@pytest.fixture
def elsewhere() -> Iterator[Shelf]:
    yield from serve(Shelf(text=b""))


def test_what_is_written_is_read_by_everybody(shelf: Shelf) -> None:
    anchor = UrlAnchor(shelf.url)
    assert not anchor.exists()
    assert anchor.read() == ()
    anchor.write([mark(1), mark(2)])
    assert anchor.exists()
    assert UrlAnchor(shelf.url).read() == (mark(1), mark(2))
    UrlAnchor(shelf.url).write([mark(3)], head(1, 2))
    assert anchor.read() == (head(1, 2), mark(3))
    before = shelf.text
    anchor.write([])
    assert shelf.text == before
    anchor.close()
    anchor.write([mark(4)])
    assert anchor.read() == (head(1, 2), mark(3), mark(4))
    assert shelf.text is not None
    assert shelf.text.endswith(b"\n")


@pytest.mark.parametrize("etags", ["none", "weak"])
def test_one_writer_needs_no_strong_etags(etags: str, shelf: Shelf) -> None:
    shelf.gives_etag, shelf.weak_etag = etags != "none", True
    anchor = UrlAnchor(shelf.url)
    for seq in range(3):
        anchor.write([mark(seq)])
    assert anchor.read() == (mark(0), mark(1), mark(2))


def test_several_writers_lose_nothing(shelf: Shelf) -> None:
    failed: list[BaseException] = []

    def work(writer: int) -> None:
        anchor = UrlAnchor(shelf.url)
        try:
            for step in range(8):
                anchor.write([mark(1 + 3 * step + writer)], head(step, 0) if step % 4 == 3 else None)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=[writer]) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    marks = {line for line in UrlAnchor(shelf.url).read() if isinstance(line, Mark)}
    assert marks == {mark(seq) for seq in range(1, 25)}


@pytest.mark.parametrize("status", [409, 412])
def test_a_write_that_is_always_overtaken_raises(
    status: int, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchor_url, "URL_TRIES", 3)
    shelf.on_put = lambda handler: handler.reply(status)
    with pytest.raises(Unavailable, match="always changed by others"):
        UrlAnchor(shelf.url).write([mark(1)])
    assert [method for method, _ in shelf.seen] == ["GET", "PUT"] * 3


@pytest.mark.parametrize("status", [202, 301, 307, 400, 401, 403, 404, 405, 500, 503])
def test_a_refused_write_raises(status: int, shelf: Shelf) -> None:
    shelf.on_put = lambda handler: handler.reply(status, Location=shelf.url)
    with pytest.raises(Unavailable, match=str(status)):
        UrlAnchor(shelf.url).write([mark(1)])


@pytest.mark.parametrize("status", [204, 206, 304, 401, 403, 500])
def test_a_refused_reading_raises_and_nothing_is_replaced(status: int, shelf: Shelf) -> None:
    shelf.on_get = lambda handler: handler.reply(status)
    anchor = UrlAnchor(shelf.url)
    for attempt in (anchor.read, anchor.exists, lambda: anchor.write([mark(1)])):
        with pytest.raises(Unavailable, match=str(status)):
            attempt()
    assert {method for method, _ in shelf.seen} == {"GET"}


def test_a_server_that_takes_everything_and_keeps_nothing_is_noticed(shelf: Shelf) -> None:
    shelf.text = b""
    shelf.on_put = lambda handler: handler.reply(200, b"fine")
    with pytest.raises(Unavailable, match="does not give it back"):
        UrlAnchor(shelf.url).write([mark(1)])


def test_text_that_is_gone_is_not_made_anew(shelf: Shelf) -> None:
    """It would look as if nothing had ever been marked."""
    wrote, saw = UrlAnchor(shelf.url), UrlAnchor(shelf.url)
    wrote.write([mark(1)])
    saw.read()
    shelf.text = None
    for anchor in (wrote, saw):
        with pytest.raises(Unavailable, match="404"):
            anchor.write([mark(2)])
        with pytest.raises(Unavailable, match="404"):
            anchor.read()
    assert shelf.text is None


def test_malformed_text_is_tampering_and_stays(shelf: Shelf) -> None:
    shelf.text = b"<html>Please log in</html>\n"
    with pytest.raises(Tampered):
        UrlAnchor(shelf.url).read()
    with pytest.raises(Tampered):
        UrlAnchor(shelf.url).write([mark(1)])
    assert shelf.text == b"<html>Please log in</html>\n"


def _cut_off(handler: _Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(f"{mark(1).line}\n".encode())
    handler.close_connection = True


def _of_unknown_length(handler: _Handler) -> None:
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(f"{mark(1).line}\n".encode())
    handler.close_connection = True


def _cut_off_in_a_chunk(handler: _Handler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    line = f"{mark(1).line}\n".encode()
    handler.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
    handler.close_connection = True


def _nonsense(handler: _Handler) -> None:
    handler.wfile.write(b"\x00\xff" * 100 + b"\r\n\r\n")
    handler.close_connection = True


def _nothing(handler: _Handler) -> None:
    handler.close_connection = True


@pytest.mark.parametrize("answer", [_cut_off, _of_unknown_length, _cut_off_in_a_chunk, _nonsense, _nothing])
def test_half_an_answer_is_not_believed(answer: Answer, shelf: Shelf) -> None:
    """Adding to it and putting it back would lose the other half."""
    shelf.on_get = answer
    for attempt in (UrlAnchor(shelf.url).read, lambda: UrlAnchor(shelf.url).write([mark(2)])):
        with pytest.raises(Unavailable):
            attempt()
    assert {method for method, _ in shelf.seen} == {"GET"}


def test_an_answer_in_chunks_is_read_whole(shelf: Shelf) -> None:
    def in_chunks(handler: _Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for seq in range(3):
            line = f"{mark(seq).line}\n".encode()
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        handler.wfile.write(b"0\r\n\r\n")

    shelf.on_get = in_chunks
    assert UrlAnchor(shelf.url).read() == (mark(0), mark(1), mark(2))


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_without_end_is_not_read_for_ever(
    chunked: bool, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchor_url, "_LARGEST_ANSWER", 100)
    line = f"{mark(1).line}\n".encode()

    def long(handler: _Handler) -> None:
        if not chunked:
            handler.reply(200, line * 3)
            return
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write((b"%x\r\n%b\r\n" % (len(line), line)) * 3 + b"0\r\n\r\n")

    shelf.on_get = long
    with pytest.raises(Unavailable, match="too long"):
        UrlAnchor(shelf.url).read()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int, shelf: Shelf, elsewhere: Shelf) -> None:
    elsewhere.text = f"{mark(1).line}\n".encode()
    shelf.on_get = lambda handler: handler.reply(status, Location=elsewhere.url)
    with pytest.raises(Unavailable, match=str(status)):
        UrlAnchor(shelf.url.replace("//", "//anna:hush@")).read()
    assert not elsewhere.seen


@pytest.mark.parametrize("place", ["file:///etc/hostname", "//[::1/", "http://127.0.0.1:x/", "/visits"])
def test_nor_one_to_an_odd_place(place: str, shelf: Shelf) -> None:
    shelf.on_get = lambda handler: handler.reply(302, Location=place)
    with pytest.raises(Unavailable, match="302"):
        UrlAnchor(shelf.url).read()
    assert len(shelf.seen) == 1


def test_nobody_there_is_unavailable(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="could not be reached"):
        UrlAnchor("http://127.0.0.1:1/visits").read()
    monkeypatch.setattr(anchor_url, "URL_TIMEOUT", 0.1)
    over = threading.Event()

    def say_nothing(handler: _Handler) -> None:
        over.wait(60)
        handler.close_connection = True

    shelf.on_get = say_nothing
    try:
        with pytest.raises(Unavailable, match="timed out"):
            UrlAnchor(shelf.url).read()
    finally:
        over.set()


def test_name_and_password_go_to_the_server_and_nowhere_else(shelf: Shelf) -> None:
    anchor = UrlAnchor(shelf.url.replace("//", "//anna:hu%40sh@") + "?token=hush")
    anchor.write([mark(1)])
    assert {sent["Authorization"] for _, sent in shelf.seen} == {"Basic YW5uYTpodUBzaA=="}
    shelf.on_get = lambda handler: handler.reply(500)
    with pytest.raises(Unavailable) as caught:
        anchor.read()
    for secret in ("anna", "hu", "token"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://x/y",
        "http://",
        "http:///x",
        "http://x:y/",
        "http://x/ä",
        "http://x/a b",
        "http://x/\n",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadParameter):
        UrlAnchor(url)
