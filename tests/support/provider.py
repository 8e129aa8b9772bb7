"""A small OpenID Connect provider, as a process of its own on loopback: RSA and EC keys, codes that work once, PKCE required.

It is honest until a test sets faults by `PUT /control`. Its tokens are signed by `cryptography` alone, not by the library that
the console verifies with. Run as a script it prints its port.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import secrets
import subprocess
import sys
import threading
import time
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int = 0) -> str:
    return text(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class State:
    """Keys, clients, users, codes and faults."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.foreign = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.issuer = ""
        self.clients: dict[str, Any] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.faults: dict[str, Any] = {}
        self.codes: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.stopping = threading.Event()

    def keys(self) -> dict[str, Any]:
        public, point = self.rsa.public_key().public_numbers(), self.ec.public_key().public_numbers()
        first = {"kty": "RSA", "kid": "r1", "use": "sig", "alg": "RS256", "n": number(public.n), "e": number(public.e)}
        second = {"kty": "EC", "kid": "e1", "use": "sig", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)}
        return {"keys": [first, second]}

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.faults.get("metadata", {}),
        }

    def token(self, code: dict[str, Any]) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.issuer, "sub": code["sub"], "aud": code["client_id"], "nonce": code["nonce"]}
        claims |= {"iat": now, "exp": now + 3600, **self.users[code["sub"]], **self.faults.get("claims", {})}
        claims = {name: value for name, value in claims.items() if value != "absent"}
        algorithm = self.faults.get("alg", "RS256")
        header = {
            "alg": algorithm,
            "typ": "JWT",
            "kid": "e1" if algorithm == "ES256" else "r1",
            **self.faults.get("header", {}),
        }
        signed = f"{text(json.dumps(header).encode())}.{text(json.dumps(claims).encode())}"
        return f"{signed}.{text(self.sign(algorithm, signed.encode()))}"

    def sign(self, algorithm: str, data: bytes) -> bytes:
        if algorithm == "none":
            return b""
        if algorithm == "HS256":  # the public key as a shared secret
            form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            return hmac.digest(self.rsa.public_key().public_bytes(*form), data, "sha256")
        if algorithm == "ES256":
            r, s = decode_dss_signature(self.ec.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        key = self.foreign if self.faults.get("key") == "foreign" else self.rsa
        return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


class Handler(BaseHTTPRequestHandler):
    """The provider's pages."""

    state: State

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: Any, kind: str = "application/json", **headers: str) -> None:
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def faulty(self, place: str) -> bool:
        """Answer as the fault of this place demands."""
        fault = self.state.faults.get(place)
        if fault == "oversize":
            self.answer(200, b'{"x": "' + b"y" * (1 << 20) + b'"}')
        elif fault == "slow":
            self.send_response(200)
            self.end_headers()
            while not self.state.stopping.wait(0.05):
                with contextlib.suppress(OSError):
                    self.wfile.write(b" ")
                    continue
                break
        elif fault == "malformed":
            self.answer(200, b'{"issuer": "secret-canary", ' + b"[" * 500)
        elif fault == "wrong types":
            self.answer(200, {"issuer": 5, "keys": "secret-canary", "id_token": ["secret-canary"]})
        elif fault == "redirect":
            self.answer(302, b"", Location=f"{self.state.issuer}/elsewhere")
        elif fault == "broken":
            self.answer(500, b"secret-canary")
        return fault is not None

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.state.requests.append(parts.path)
        if parts.path == "/.well-known/openid-configuration":
            self.faulty("discovery") or self.answer(200, self.state.metadata())
        elif parts.path == "/jwks":
            self.faulty("jwks") or self.answer(200, self.state.keys())
        elif parts.path == "/authorize":
            if self.request_of(parts.query) is not None:
                buttons = "".join(
                    f'<button name="sub" value="{escape(sub)}">{escape(sub)}</button>' for sub in self.state.users
                )
                self.answer(200, f"<!doctype html><h1>Provider</h1><form method=post>{buttons}</form>", "text/html")
        else:
            self.answer(404, {})

    def request_of(self, query: str) -> dict[str, str] | None:
        """The authorization request; answers itself if that is not a right one."""
        asked = dict(parse_qsl(query))
        client = self.state.clients.get(asked.get("client_id", ""))
        if client is None or asked.get("redirect_uri") not in client["redirects"]:
            self.answer(400, "unknown client or redirect", "text/plain")
            return None
        right = asked.get("response_type") == "code" and "openid" in asked.get("scope", "").split()
        if not right or asked.get("code_challenge_method") != "S256" or len(asked.get("code_challenge", "")) != 43:
            self.answer(400, "invalid request", "text/plain")
            return None
        return asked

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        self.state.requests.append(parts.path)
        form = dict(parse_qsl(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()))
        if parts.path == "/authorize":
            asked = self.request_of(parts.query)
            if asked is not None:
                code = secrets.token_urlsafe(24)
                self.state.codes[code] = {**asked, "sub": form["sub"]}
                back = {"code": code, "state": asked["state"], "iss": self.state.issuer}
                self.answer(302, b"", Location=f"{asked['redirect_uri']}?{urlencode(back)}")
        elif parts.path == "/token":
            self.faulty("token") or self.token(form)
        else:
            self.answer(404, {})

    def token(self, form: dict[str, str]) -> None:
        code = self.state.codes.pop(form.get("code", ""), None)  # works once
        client_id, secret = form.get("client_id", ""), None
        basic = self.headers.get("Authorization", "").removeprefix("Basic ")
        if basic:
            client_id, _, secret = (unquote(each) for each in base64.b64decode(basic).decode().partition(":"))
        client = self.state.clients.get(client_id)
        challenge = text(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if client is None or client["secret"] != secret:
            self.answer(401, {"error": "invalid_client"})
        elif code is None or form.get("grant_type") != "authorization_code" or code["code_challenge"] != challenge:
            self.answer(400, {"error": "invalid_grant", "error_description": "secret-canary"})
        elif (code["client_id"], code["redirect_uri"]) != (client_id, form.get("redirect_uri")):
            self.answer(400, {"error": "invalid_grant"})
        else:
            token = self.state.token(code)
            self.answer(200, {"access_token": "unused", "token_type": "Bearer", "expires_in": 3600, "id_token": token})

    def do_PUT(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        for name, value in given.items():
            setattr(self.state, name, value)
        self.answer(200, {"requests": self.state.requests})


def serve() -> None:
    Handler.state = State()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.state.issuer = f"http://localhost:{server.server_port}"
    print(server.server_port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), Handler.state.stopping.set(), server.shutdown()), daemon=True).start()
    server.serve_forever()


class ProviderProcess:
    """The provider as a test sees it. It ends when the test's process does."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())
        self.issuer = f"http://localhost:{self.port}"

    def ask(self, method: str, path: str, body: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Connection": "close"}
        connection.request(method, path, body, kind)
        answer = connection.getresponse()
        answer.read()
        return answer

    def set(self, **state: Any) -> list[str]:
        """Set users, clients or faults; the paths that were asked for so far."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("PUT", "/control", json.dumps(state))
        return list(json.loads(connection.getresponse().read())["requests"])

    def sign_in(self, address: str, sub: str) -> str:
        """Sign in at the address to which the console sent the browser; the address to which the provider sends it back."""
        parts = urlsplit(address)
        answer = self.ask("POST", f"{parts.path}?{parts.query}", urlencode({"sub": sub}))
        assert answer.status == 302, answer.status
        return str(answer.headers["Location"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


if __name__ == "__main__":
    serve()
