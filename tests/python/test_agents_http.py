"""A service that fails while a program compiles or runs: PyTorch's own result, a warning and a
counter."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import enable
from forged import compiled

pytestmark = pytest.mark.usefixtures("lost_races")

_KEY = "sk-not-to-be-told"
_PATIENCE_S = 60  # of a server that hangs: a client that is still there has no limit of time


_ERRORS: dict[str, tuple[int, dict[str, str]]] = {
    "error": (500, {}),
    "unauthorized": (401, {}),
    "too many": (429, {}),
    "too many, later": (429, {"Retry-After": "3600"}),
}


class _Service(BaseHTTPRequestHandler):
    """Fails in the way that `fault` of the server says, and notes in `ends` how each call ended."""

    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.fault in _ERRORS:
            status, headers = _ERRORS[self.server.fault]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
        elif self.server.fault == "drip":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            start = time.monotonic()
            try:
                while time.monotonic() - start < _PATIENCE_S:
                    self.wfile.write(b": still there\n\n")
                    time.sleep(0.05)
            except (BrokenPipeError, ConnectionResetError):
                self.server.ends.append("left")
                return
            self.server.ends.append("waits without end")
            return
        elif self.server.fault == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
        else:
            self.connection.settimeout(_PATIENCE_S)
            try:
                left = not self.connection.recv(1)
            except ConnectionResetError:
                left = True
            except TimeoutError:
                left = False
            self.server.ends.append("left" if left else "waits without end")
            return
        self.server.ends.append("answered")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """On a free port of this machine."""

    daemon_threads = False  # server_close() waits for running calls

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), _Service)
        self.fault = fault
        self.ends: list[str] = []


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A service with the fault that the test names."""
    made = Server(request.param)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize("server", ["error", "cut", "hang"], indirect=True)
def test_a_service_that_fails_costs_a_warning(tmp_path: Path, server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    agents = {"coder": f"openai:m@{url}", "seconds": 4}
    made = compiled(lambda x, w: torch.relu(x @ w), tmp_path / "cache", agents=agents)
    x, w = torch.randn(8, 16), torch.randn(16, 24)
    with warnings.catch_warnings(record=True) as seen, torch.no_grad():
        warnings.simplefilter("always")
        for _ in range(2):
            torch.testing.assert_close(made(x, w), torch.relu(x @ w))
    ours = [str(w.message) for w in seen if w.category is cudaforge_backend.CudaForgeWarning]
    assert [text.partition(" for ")[0] for text in ours] == ["agents wrote no kernel"]
    stats = cudaforge_backend.stats()
    assert (stats.fallbacks, stats.forged, stats.negative) == ({"no_reply": 1}, 0, 0)
    assert stats.agents.calls == stats.agents.failed == 1
    server.shutdown()
    server.server_close()
    assert set(server.ends) == {"left" if server.fault == "hang" else "answered"}


def _served(tmp_path: Path, url: str, rows: int) -> dict[str, int]:
    """An eager product of so many rows is PyTorch's, in bounded time, where the service at `url` is
    to write its kernel; why that failed, counted."""
    x, w = torch.randn(rows, 16), torch.randn(16, 24)
    expected = x @ w
    agents = {"coder": f"openai:m@{url}", "coder_key": _KEY, "seconds": 4}
    start = time.monotonic()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        cache = str(tmp_path / "cache")
        with enable(["aten::mm"], on_miss="blocking", cache_dir=cache, agents=agents):
            for _ in range(2):
                torch.testing.assert_close(x @ w, expected)
    assert time.monotonic() - start < 40
    assert not [w for w in seen if _KEY in str(w.message)]
    stats = cudaforge_backend.stats()
    assert (stats.hits, stats.forged) == (0, 0)
    fallbacks: dict[str, int] = stats.fallbacks
    return fallbacks


@pytest.mark.parametrize("server", [*_ERRORS, "drip"], indirect=True)
def test_an_eager_call_is_served_whatever_fails(tmp_path: Path, server: Server) -> None:
    rows = 200 + [*_ERRORS, "drip"].index(server.fault)
    url = f"http://127.0.0.1:{server.server_port}/v1"
    assert _served(tmp_path, url, rows) == {"no_reply": 1}
    assert server.fault == "drip" or "answered" in server.ends


def _plain(port: int) -> str:
    return f"https://127.0.0.1:{port}/v1"


def _taken(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize("url", [_plain, _taken], ids=["no TLS", "takes no connection"])
def test_an_eager_call_is_served_without_a_connection(
    tmp_path: Path, url: Callable[[int], str]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listener:
        port = listener.getsockname()[1]
        waiting = []
        if url is _taken:  # its queue is full: the next connection is never made
            for _ in range(4):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(("127.0.0.1", port))
        assert _served(tmp_path, url(port), 300 if url is _plain else 301) == {"no_reply": 1}
        for one in waiting:
            one.close()
