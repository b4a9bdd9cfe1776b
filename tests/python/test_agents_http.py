"""A service that fails while a program compiles: PyTorch's own result, a warning and a counter."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from forged import compiled

_PATIENCE_S = 60  # of a server that hangs: a client that is still there has no limit of time


class _Service(BaseHTTPRequestHandler):
    """Fails in the way that `fault` of the server says, and notes in `ends` how each call ended."""

    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.fault == "error":
            self.send_error(500)
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

    daemon_threads = False  # server_close() waits for the calls under way

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
    assert (stats["fallbacks"], stats["forged"], stats["negative"]) == ({"no_reply": 1}, 0, 0)
    assert stats["agents"]["calls"] == stats["agents"]["failed"] == 1
    server.shutdown()
    server.server_close()
    assert set(server.ends) == {"left" if server.fault == "hang" else "answered"}
