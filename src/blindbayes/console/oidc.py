"""OpenID Connect, the client's side: discovery, exchange of a code, verification of an ID token, roles by claim.

Everything here blocks: the console calls it in a thread. Of the provider's answers only the ID token is used; access and
refresh tokens are dropped unread. No error holds a part of a token, a code or a secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from blindbayes._lazy import need
from blindbayes.agent.approvals.people import require_name
from blindbayes.agent.config import SignIn, require_endpoint
from blindbayes.console.fetch import MAX_BYTES, FetchError, fetch
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.audit_log import Subject
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import read_private
from blindbayes.io.untrusted import convert, read_json_table, require_seen

# Asymmetric ones only: "none" is unsigned, and HS* would take a public key as a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_CURVES = {"ES256": ("P-256",), "ES384": ("P-384",), "ES512": ("P-521",), "EdDSA": ("Ed25519", "Ed448")}
_KTY = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_MIN_RSA_BITS = 2048
_MAX_KEYS = 64
_LEEWAY = 30  # seconds between the clocks of provider and site
_CACHE_SECONDS = 3600.0
_RETRY_SECONDS = 30.0  # keys are fetched again for an unknown key id, and no more often than this
_REQUIRED = ("iss", "sub", "aud", "exp", "iat", "nonce")


class SignInRefused(BlindbayesError):
    """Raised to refuse a sign-in. `rule` names the failed check for the log; `who` is set once a token verified."""

    def __init__(self, rule: str, message: str, who: Subject | None = None) -> None:
        super().__init__(message)
        self.rule, self.who = rule, who


class _Metadata(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...]


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """The secrets of one sign-in, kept between the redirect to the provider and its response."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect: str
    settings: SignIn
    until: float
    begun: float  # by the wall clock, as the provider's times

    @classmethod
    def begin(cls, settings: SignIn, redirect: str, until: float) -> Attempt:
        state, nonce, verifier = (_text(Coins.system().bytes(32)) for _ in range(3))
        return cls(state, nonce, verifier, redirect, settings, until, time.time())


@dataclass(frozen=True, slots=True)
class Vouched:
    """A person authenticated by the provider, until a time of the wall clock."""

    subject: Subject
    expires: float


class Provider:
    """An identity provider. Its discovery document and keys are cached."""

    def __init__(self, settings: SignIn, folder: Path) -> None:
        self.settings, self._folder, self._clock = settings, folder, time.monotonic
        self._lock = threading.Lock()
        self._metadata: tuple[float, _Metadata] | None = None
        self._keys: tuple[float, tuple[dict[str, Any], ...]] | None = None

    def address(self, attempt: Attempt) -> str:
        """Return the authorization URL for the browser. Raises `SignInRefused` if the provider cannot be used."""
        _library()  # before the browser leaves
        metadata = self.metadata()
        challenge = _text(hashlib.sha256(attempt.verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": attempt.redirect,
            "scope": self.settings.scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "prompt": "login",  # a browser that is still signed in at the provider is not yet its owner
        }
        endpoint = metadata.authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def finish(self, attempt: Attempt, answer: Mapping[str, str]) -> Vouched:
        """Return the person of an authorization response. Raises `SignInRefused` if a check fails."""
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInRefused("state", "this sign-in was not begun in this browser, or is over: begin again")
        metadata = self.metadata()
        issuer = answer.get("iss")
        if (issuer is not None or metadata.authorization_response_iss_parameter_supported) and issuer != metadata.issuer:
            raise SignInRefused("response issuer", "another provider answered than the one that was asked: begin again")
        if "error" in answer:
            raise SignInRefused("provider", "the provider did not sign you in: ask those who run it, or begin again")
        if not 0 < len(answer.get("code", "")) <= 4096:
            raise SignInRefused("code", "the provider's answer holds no code: begin again")
        return self.verify(self._exchange(metadata, attempt, answer["code"]), attempt)

    # -- the provider's documents ------------------------------------------------------------------------------------------

    def metadata(self) -> _Metadata:
        """Return the discovery document, at most an hour old."""
        with self._lock:
            if self._metadata is None or self._clock() - self._metadata[0] > _CACHE_SECONDS:
                self._metadata = self._clock(), self._discover()
            return self._metadata[1]

    def _discover(self) -> _Metadata:
        what, issuer = "the provider's discovery document", self.settings.issuer
        metadata: _Metadata = self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", what, "discovery", _Metadata)
        if metadata.issuer != issuer:
            raise SignInRefused("discovery", f"{what} names another issuer than site.toml: compare issuer under [sign_in]")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            try:
                url = require_endpoint(getattr(metadata, name), name)
            except ConfigError as problem:
                raise SignInRefused("discovery", f"{what}: {problem}") from None
            if issuer.startswith("https:") and not url.startswith("https:"):
                raise SignInRefused("discovery", f"{what}: {name} is not https although the issuer is")
        methods = metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise SignInRefused("discovery", "the provider does not offer PKCE with S256: switch it on for this client")
        return metadata

    def _get(self, url: str, what: str, rule: str, kind: type[Any]) -> Any:
        try:
            body = fetch(url, what, tls=self._tls())
        except FetchError as problem:
            raise SignInRefused("unreachable", f"{problem}: sign in with a code or password, or try again later") from None
        return _parsed(body, what, rule, kind)

    def _tls(self) -> ssl.SSLContext | None:
        """Return a context that verifies certificate and host name; with `authority`, by that authority alone."""
        name = self.settings.authority
        if self.settings.issuer.startswith("http:"):  # on this machine
            return None
        try:
            return ssl.create_default_context(cafile=None if name is None else str(self._folder / name))
        except (OSError, ssl.SSLError):
            raise SignInRefused("settings", "authority under [sign_in] in site.toml is not a readable PEM file") from None

    def _exchange(self, metadata: _Metadata, attempt: Attempt, code: str) -> str:
        """Exchange an authorization code for an ID token."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect,
            "code_verifier": attempt.verifier,
            "client_id": self.settings.client_id,
        }
        headers, secret = dict[str, str](), self._secret()
        if secret is not None and "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        elif secret is not None:
            form["client_secret"] = secret
        try:
            body = fetch(metadata.token_endpoint, "the provider's token", form=form, headers=headers, tls=self._tls())
        except FetchError as problem:
            if problem.status in (400, 401, 403):
                raise SignInRefused("code", "the provider refused the code or this client: begin again") from None
            raise SignInRefused("unreachable", f"{problem}: sign in with a code or password, or try again later") from None
        tokens: _Tokens = _parsed(body, "the provider's token answer", "token answer", _Tokens)
        return tokens.id_token

    def _secret(self) -> str | None:
        name = self.settings.secret_file
        if name is None:
            return None
        try:
            return read_private(self._folder / name).decode().strip()
        except (ConfigError, OSError, UnicodeDecodeError):
            problem = "secret_file under [sign_in] in site.toml is missing, unreadable or readable by others: chmod 600 it"
            raise SignInRefused("settings", problem) from None

    # -- the ID token --------------------------------------------------------------------------------------------------------

    def verify(self, token: str, attempt: Attempt) -> Vouched:
        """Verify an ID token and return its person. Raises `SignInRefused` if a check fails."""
        jwt = _library()
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS or "crit" in header or str(header.get("typ", "JWT")).upper() != "JWT":
                raise SignInRefused("algorithm", "the ID token is not signed by an algorithm that is accepted here")
            claims = jwt.decode(
                token,
                self._key(jwt, algorithm, kid),
                algorithms=[algorithm],
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_LEEWAY,
                options={"require": list(_REQUIRED)},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as problem:
            rule = _RULES.get(type(problem).__name__, "malformed token")
            raise SignInRefused(rule, f"the provider's ID token is not valid here ({rule}): begin again") from None
        return self._person(claims, attempt)

    def _key(self, jwt: Any, algorithm: str, kid: Any) -> Any:
        """Return the provider's key for a token's header; an unknown key id has the keys fetched again."""
        if kid is not None and not isinstance(kid, str):
            raise SignInRefused("unknown key", "the ID token names its key in an unknown way")
        fits = _fitting(self._key_set(_CACHE_SECONDS), algorithm, kid) or _fitting(
            self._key_set(_RETRY_SECONDS), algorithm, kid
        )
        if len(fits) != 1:
            raise SignInRefused("unknown key", "the ID token is signed with a key that the provider does not publish")
        key = jwt.PyJWK.from_dict(fits[0], algorithm=algorithm).key
        if getattr(key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and fits[0]["kty"] == "RSA":
            raise SignInRefused("algorithm", "the provider's RSA key is too short")
        return key

    def _key_set(self, max_age: float) -> tuple[dict[str, Any], ...]:
        uri = self.metadata().jwks_uri
        with self._lock:
            if self._keys is None or self._clock() - self._keys[0] > max_age:
                keys = self._get(uri, "the provider's key set", "key set", _Keys).keys[:_MAX_KEYS]
                self._keys = self._clock(), keys
            return self._keys[1]

    def _person(self, claims: dict[str, Any], attempt: Attempt) -> Vouched:
        settings, subject, expires = self.settings, claims["sub"], claims["exp"]
        if not isinstance(claims["nonce"], str) or not hmac.compare_digest(claims["nonce"].encode(), attempt.nonce.encode()):
            raise SignInRefused("nonce", "the ID token was made for another sign-in: begin again")
        entered = claims.get("auth_time", attempt.begun)  # if the provider says it: a browser can drop prompt=login
        if not _is_time(entered) or entered < attempt.begun - _LEEWAY:
            raise SignInRefused("old sign-in", "the provider let an earlier sign-in pass: sign out there, and begin again")
        others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if others else settings.client_id) != settings.client_id:
            raise SignInRefused("audience", "the ID token was made for another client")
        if not isinstance(subject, str) or not 0 < len(subject) <= 255 or not (subject.isascii() and subject.isprintable()):
            raise SignInRefused("malformed token", "the ID token's sub is not a text of 1 to 255 characters")
        if not _is_time(expires):
            raise SignInRefused("malformed token", "the ID token's exp is not a time")
        name = claims.get(settings.name_claim, subject[:80])
        nobody = Subject("unnamed", settings.issuer, subject, frozenset())
        try:
            if not isinstance(name, str):
                raise ConfigError("not a text")
            name = require_seen(require_name(name), "a name")
        except ConfigError:
            raise SignInRefused("name claim", "the name claim of the ID token is not a short text", nobody) from None
        return Vouched(Subject(name, settings.issuer, subject, _roles(claims, settings, nobody)), float(expires))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_RULES = {  # by the library's errors
    "ExpiredSignatureError": "expired",
    "ImmatureSignatureError": "not yet valid",
    "InvalidAudienceError": "audience",
    "InvalidIssuerError": "issuer",
    "InvalidSignatureError": "signature",
    "MissingRequiredClaimError": "missing claim",
}


def _library() -> Any:
    try:
        return need("jwt")
    except ConfigError as problem:
        raise SignInRefused("settings", str(problem)) from None


def _roles(claims: Mapping[str, Any], settings: SignIn, nobody: Subject) -> frozenset[str]:
    """Return the roles that the claim gives. Raises without any role."""
    name, value = settings.roles_claim, claims.get(settings.roles_claim)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    values = [value] if isinstance(value, str) else value
    if values is not None and not (isinstance(values, list) and all(isinstance(each, str) for each in values)):
        raise SignInRefused("roles claim", "the roles claim of the ID token is neither a text nor a list of texts", nobody)
    roles = frozenset(settings.roles[each] for each in values or () if each in settings.roles)
    if not roles:
        problem = "you are known to the provider, and have no role at this site: ask a steward which role or group it takes"
        raise SignInRefused("no role", problem, nobody)
    return frozenset(map(str, roles))


def _fitting(keys: tuple[dict[str, Any], ...], algorithm: str, kid: str | None) -> list[dict[str, Any]]:
    """Return the keys that may have signed with this algorithm under this key id."""
    return [
        key
        for key in keys
        if key.get("kty") == _KTY[algorithm[:2]]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (kid is None or key.get("kid") == kid)
        and (algorithm not in _CURVES or key.get("crv") in _CURVES[algorithm])
    ]


def _parsed(body: bytes, what: str, rule: str, kind: type[Any]) -> Any:
    try:
        return convert(read_json_table(body, what, max_bytes=MAX_BYTES), kind, what)
    except ConfigError:  # its text may quote the document
        raise SignInRefused(rule, f"{what} is not as OpenID Connect specifies it") from None


def _text(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
