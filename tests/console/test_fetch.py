"""Fetching from an identity provider: certificates, host names, and a total time that no slow sender stretches."""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from blindbayes.console import fetch as module
from blindbayes.console.fetch import MAX_BYTES, FetchError, fetch


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for a name, with its key, in one PEM file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    whose = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if name == "localhost":
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    made = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / f"{name}.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain))
    return path


class Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        body = b"x" * (MAX_BYTES + (self.path == "/long"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)


@contextlib.contextmanager
def served(pem: Path) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_certificate_must_be_of_a_known_authority_and_for_the_host(tmp_path: Path) -> None:
    right, other = certificate(tmp_path, "localhost"), certificate(tmp_path, "other.example")
    with served(right) as port:
        url = f"https://localhost:{port}/"
        assert len(fetch(url, "it", tls=ssl.create_default_context(cafile=right))) == MAX_BYTES
        with pytest.raises(FetchError, match="longer than 256 kB"):
            fetch(url + "long", "it", tls=ssl.create_default_context(cafile=right))
        for context in (None, ssl.create_default_context(cafile=other)):
            with pytest.raises(FetchError, match="SSLCertVerificationError"):
                fetch(url, "it", tls=context)
    with served(other) as port, pytest.raises(FetchError, match="SSLCertVerificationError"):
        fetch(f"https://localhost:{port}/", "it", tls=ssl.create_default_context(cafile=other))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_sender_of_one_byte_at_a_time_is_cut_off(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Each byte comes well within the time of one read; the handshake or the header never ends."""
    monkeypatch.setattr(module, "SECONDS", 0.3)
    stop, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))
    start = b"\x16\x03\x03\x40\x00" if scheme == "https" else b"HTTP/1.1 200 OK\r\nx: "

    def drip() -> None:
        sender, _ = listening.accept()
        with sender, contextlib.suppress(OSError):
            sender.sendall(start)
            while not stop.wait(0.02):
                sender.sendall(b"\x02")

    thread = threading.Thread(target=drip)
    thread.start()
    before = time.monotonic()
    with pytest.raises(FetchError, match="too long"):
        fetch(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/", "it")
    assert time.monotonic() - before < 30  # and not for ever
    stop.set()
    thread.join()
    listening.close()
