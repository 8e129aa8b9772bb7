"""Settings of a site that cannot be safe are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.agent.config import SignIn, SiteConfig
from blindbayes.errors import ConfigError

VALID = {"issuer": "https://id.example/realms/x", "client_id": "c", "roles": {"s": "steward"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://id.example"},
        {"issuer": "ftp://id.example"},
        {"issuer": "https://user@id.example"},
        {"issuer": "https://id.example/?x=1"},
        {"issuer": "https://id.example/#x"},
        {"issuer": "https://id example"},
        {"issuer": "https://id.example:port"},
        {"client_id": ""},
        {"roles": {}},
        {"roles": {"s": "admin"}},
        {"scope": "profile"},
        {"scope": "openid offline_access"},
        {"max_session_minutes": 0},
        {"first_approval_hours": 0},
        {"client_secret": "inline"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_safe_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    import tomlkit

    path = tmp_path / "site.toml"
    path.write_text(tomlkit.dumps({"sign_in": VALID}))
    assert SiteConfig.read(path).sign_in == msgspec.convert(VALID, SignIn)
    path.write_text(tomlkit.dumps({"sign_in": VALID | wrong}))
    with pytest.raises(ConfigError):
        SiteConfig.read(path)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_http_is_for_this_machine(host: str) -> None:
    assert msgspec.convert(VALID | {"issuer": f"http://{host}:8080"}, SignIn)
