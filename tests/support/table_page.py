"""The page Table: uploads, forms, and the folder of the site that they reach."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from blindbayes.agent.site_file import change_settings, version_of
from support.consoles import Answer, Consoles

CSV = b"class,colour,age\nill,red,3\nwell,blue,4\n"


BOUNDARY = "----blindbayes"


def csrf_of(office: Consoles, signed_in: dict[str, str]) -> str:
    page = office.ask("north", "GET", "/table", headers=signed_in, token=False).text
    return re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]


def part(name: str, content: bytes, file: str | None = None) -> bytes:
    named = "" if file is None else f'; filename="{file}"'
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content + b"\r\n"


def upload(office: Consoles, who: dict[str, str], *parts: bytes, **headers: str) -> Answer:
    given = {**who, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}", **headers}
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return office.ask("north", "POST", "/table/upload", body, headers=given, token=False)


def folder_of(office: Consoles) -> Path:
    return office.office.net.sites["north"].home.folder


def files_in(office: Consoles) -> list[str]:
    folder = folder_of(office) / "data"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def configure(office: Consoles, **console: Any) -> None:
    home = office.office.net.sites["north"].home
    changes = {f"console.{name}": value for name, value in console.items()}
    change_settings(home.folder, changes, version_of(home.folder))
    office.do(home.reload)


def ask(office: Consoles, who: dict[str, str], path: str, **fields: str) -> Answer:
    form = urlencode({"csrf": csrf_of(office, who), "version": version_of(folder_of(office)), **fields})
    return office.ask("north", "POST", path, form, headers=who, token=False)
