"""What the console keeps: other origins out, tokens to itself, rows at home; and that it stays quick when it has grown old."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pytest

from blindbayes.agent.approvals.people import Person
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import View
from blindbayes.console.port import ConsolePort
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.errors import ConfigError
from blindbayes.io.chain import GENESIS
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from support.consoles import NAMES, Consoles, csrf_of
from support.engines import until
from support.sites import BOOK, CANARY

QUICK = Deadlines(step=20, join=20, run=35)


@pytest.fixture(scope="module")
def study(office: Consoles) -> StudyFile:
    made = office.office.net.make_study(
        BOOK, title="<img src=x onerror=alert(1)>", privacy=Privacy(epsilon=1.0), deadlines=QUICK
    )
    office.office.net.approve(made, runs=5)
    return made


@pytest.fixture(scope="module")
def run(office: Consoles, study: StudyFile) -> str:
    found = office.do(lambda: office.office.agents["north"].begin(study.sha256))
    office.wait(found.done.wait())
    return found.run_id


def paths(study: str, run: str) -> list[str]:
    """The pages without those of drafts, which `test_writing` looks at."""
    pages = [call.path for call in CALLS if isinstance(call, View) and call.page and "{draft}" not in call.path]
    return [path.format(study=study, run=run) for path in pages]


def test_a_form_acts_only_with_the_token_of_its_own_page_and_from_this_origin(office: Consoles, study: StudyFile) -> None:
    ada = office.sign_in("north")
    csrf, action = csrf_of(office, ada), f"/studies/{study.sha256}/revoke"
    approvals = office.office.net.sites["north"].home.approvals

    def post(form: dict[str, str], **headers: str) -> int:
        given = {k.replace("_", "-"): v for k, v in headers.items()}
        return office.ask("north", "POST", action, urlencode(form), headers={**ada, **given}, token=False).status

    assert post({}) == 403
    assert post({"csrf": "0" * 48}) == 403
    assert post({"csrf": csrf}, Origin="http://evil.example") == 403
    assert post({"csrf": csrf}, Origin="null") == 403
    assert post({"csrf": csrf}, Sec_Fetch_Site="cross-site") == 403
    assert post({"csrf": csrf}, Host="evil.example:80") == 403
    assert office.ask("north", "POST", action, urlencode({"csrf": csrf}), token=False).status == 401
    assert post({"csrf": csrf_of(office, office.sign_in("north", "Eve"))}) == 403  # of another session
    assert approvals.find(study.sha256) is not None
    assert office.ask("north", "GET", action, headers=ada, token=False).status in (404, 405)


def test_the_cookie_is_for_this_browser_alone_and_ends_with_the_session(office: Consoles) -> None:
    code = office.ports["south"].auth.new_code("Ada")
    answer = office.ask("south", "POST", "/login", urlencode({"name": "Ada", "code": code}), token=False)
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "expires" not in cookie.lower()
    given = {"Cookie": cookie.split(";")[0]}
    assert office.ask("south", "GET", "/", headers=given, token=False).status == 200
    assert office.ask("north", "GET", "/", headers=given, token=False).status == 303
    page = office.ask("south", "GET", "/settings", headers=given, token=False).text
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]
    assert office.ask("south", "POST", "/api/codes", "{}", headers={**given, "X-CSRF-Token": csrf}, token=False).status == 403
    office.ask("south", "POST", "/logout", urlencode({"csrf": csrf}), headers=given, token=False)
    assert office.ask("south", "GET", "/", headers=given, token=False).status == 303


def test_signing_in_to_a_second_console_of_this_machine_does_not_sign_out_of_the_first(office: Consoles) -> None:
    both = {"Cookie": "; ".join(office.sign_in(name)["Cookie"] for name in ("north", "south"))}  # a browser sends both to both
    assert both["Cookie"].count("blindbayes-") == 2
    for name in ("north", "south"):
        assert office.ask(name, "GET", "/settings", headers=both, token=False).status == 200
    csrf = csrf_of(office, both)
    office.ask("north", "POST", "/logout", urlencode({"csrf": csrf}), headers=both, token=False)
    assert office.ask("north", "GET", "/settings", headers=both, token=False).status == 303
    assert office.ask("south", "GET", "/settings", headers=both, token=False).status == 200


def test_guessing_ends_after_five_tries(tmp_path: Path) -> None:
    with Consoles(tmp_path, NAMES) as office:
        tries = [office.ask("north", "POST", "/login", "name=a&code=b", token=False).status for _ in range(7)]
        assert tries == [403] * 5 + [429] * 2
        code = office.ports["north"].auth.new_code("Ada")
        assert office.ask("north", "POST", "/login", urlencode({"name": "Ada", "code": code}), token=False).status == 429


def test_people_by_name_have_passwords_and_do_what_their_role_may(tmp_path: Path) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        office.office.net.approve(study)
        people = office.office.net.sites["north"].home.people
        people.add(Person("Ada", "steward", secret=hash_password("correct horse", Coins.system())))
        people.add(Person("Alan", "analyst", secret=hash_password("battery", Coins.system())), who="Ada")

        def enter(**form: str) -> Any:
            return office.ask("north", "POST", "/login", urlencode(form), token=False)

        assert enter(name="Ada", password="battery").status == 403
        assert enter(name="Nobody", password="battery").status == 403
        with pytest.raises(ConfigError, match="not in this site"):
            office.ports["north"].auth.new_code("Nobody")
        alan = {"Cookie": enter(name="Alan", password="battery").headers["Set-Cookie"].split(";")[0]}
        csrf = csrf_of(office, alan)
        form = urlencode({"csrf": csrf, "why": "no"})
        answer = office.ask("north", "POST", f"/studies/{study.sha256}/revoke", form, headers=alan, token=False)
        assert answer.status == 400
        assert "this needs one of the roles: steward, officer" in answer.text
        assert office.office.net.sites["north"].home.approvals.find(study.sha256) is not None
        begun = office.ask(
            "north", "POST", "/runs", urlencode({"csrf": csrf, "study": study.sha256}), headers=alan, token=False
        )
        assert begun.status == 303
        assert "correct horse" not in people.path.read_text()
        home = office.office.net.sites["north"].home
        assert [entry["who"] for entry in home.audit.where("event", "asked for")] == ["Alan"]
        for path in ("/data", f"/studies/{study.sha256}/dry-run"):  # counts of rows, by a codebook of the asker's choice
            said = office.ask(
                "north", "POST", path, urlencode({"csrf": csrf, "study": study.sha256}), headers=alan, token=False
            )
            assert (said.status, "this needs one of the roles: steward, officer" in said.text) == (400, True)
        people.add(Person("Alan", "officer", secret=hash_password("battery", Coins.system())), who="Ada")
        again = urlencode({"csrf": csrf, "study": study.sha256})
        assert office.ask("north", "POST", "/runs", again, headers=alan, token=False).status == 400  # the role of now
        people.remove("Alan", who="Ada")
        for method, path, body in (("GET", "/api/ledger", ""), ("POST", "/api/runs", json.dumps({"study": study.sha256}))):
            gone = office.ask("north", method, path, body, headers={**alan, "x-csrf-token": csrf}, token=False)
            assert gone.status == 401


def test_tokens_and_codes_are_in_no_page_log_url_or_event(
    office: Consoles, study: StudyFile, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    auth = office.ports["north"].auth
    with caplog.at_level(logging.DEBUG):
        code = auth.new_code("Ada")
        office.ask("north", "POST", "/login", urlencode({"name": "Ada", "code": code + "x"}), token=False)
        ada = office.sign_in("north")
        pages = [office.ask("north", "GET", path, headers=ada, token=False) for path in paths(study.sha256, run)]
        metrics = (office.office.net.sites["north"].home.folder / "metrics.token").read_text().strip()
        cookie = ada["Cookie"].partition("=")[2]
        csrf = csrf_of(office, ada)
    for secret in (auth.token, code, metrics, cookie):
        assert all(secret not in page.text for page in pages)
        assert secret not in caplog.text
        assert secret not in office.office.net.sites["north"].home.audit.path.read_text()
    for page in pages:
        assert page.status == 200
        links = re.findall(r'(?:href|action|src)="([^"]*)"', page.text)
        assert not any(csrf in link or cookie in link for link in links)
        assert all(link.startswith(("/", "#")) for link in links)
        assert not re.search(r"<script(?! src=)|\son\w+=\"|\sstyle=", page.text)  # what the policy of the page forbids


def test_hostile_titles_and_names_are_text(office: Consoles, study: StudyFile, run: str) -> None:
    with pytest.raises(ConfigError):
        office.ports["north"].auth.new_code("Eve\u202e")
    eve = office.sign_in("north", "<svg/onload=alert(1)>")
    for path in paths(study.sha256, run):
        text = office.ask("north", "GET", path, headers=eve, token=False).text
        assert "<img" not in text
        assert "<svg/onload" not in text
        assert "\u202e" not in text


def test_no_page_call_or_event_holds_a_value_of_a_row(tmp_path: Path) -> None:
    """Rows with a value that nobody listed, out of bounds, and in no codebook: seen nowhere but in counts of the data check."""
    with Consoles(tmp_path, NAMES) as office:
        odd = 98765.4321
        for name in NAMES:
            with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as connection:
                connection.execute("insert into visits values ('ill', ?, ?)", (CANARY, odd))
        study = office.office.net.make_study(BOOK, deadlines=QUICK)
        office.office.net.approve(study)
        ada = office.sign_in("north")
        csrf = csrf_of(office, ada)
        events: list[bytes] = []
        host, _, port = office.ports["north"].address.rpartition(":")

        def listen() -> None:
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            connection.request("GET", "/events?of=/", headers=ada)
            answer = connection.getresponse()
            with contextlib.suppress(OSError):
                while line := answer.readline():
                    events.append(line)
                    if b"failed" in line:
                        return

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        failed = office.do(lambda: office.office.agents["north"].begin(study.sha256))
        office.wait(failed.done.wait())
        seen = [office.ask("north", "GET", path, headers=ada, token=False).text for path in paths(study.sha256, failed.run_id)]
        seen += [office.ask("north", "GET", f"/api{path}").text for path in paths(study.sha256, failed.run_id)]
        form = urlencode({"csrf": csrf, "study": study.sha256})
        checked = office.ask("north", "POST", "/data", form, headers=ada, token=False)
        assert "categories that the codebook does not list" in checked.text
        dry = office.ask(
            "north", "POST", f"/studies/{study.sha256}/dry-run", urlencode({"csrf": csrf}), headers=ada, token=False
        )
        listener.join(60)
        assert b"failed" in events[-1]
        for text in (*seen, checked.text, dry.text, b"".join(events).decode()):
            assert CANARY not in text
            assert "98765" not in text


def test_a_release_page_reaches_nothing_of_the_console(office: Consoles, run: str) -> None:
    ada = office.sign_in("north")
    page = office.ask("north", "GET", f"/releases/{run}/files/leakage.html", headers=ada, token=False)
    assert page.status == 200
    assert page.headers["Content-Security-Policy"].startswith("sandbox")
    assert "allow-same-origin" not in page.headers["Content-Security-Policy"]
    for wrong in ("../../site.toml", "..%2f..%2fkeys", "classes.csv", "%00"):
        assert office.ask("north", "GET", f"/releases/{run}/files/{wrong}", headers=ada, token=False).status == 404
    assert office.ask("north", "GET", "/static/..%2fauth.py", headers=ada, token=False).status == 404


# -- an old site, and many who look ----------------------------------------------------------------------------------------


def grow(folder: Path, runs: int, entries: int) -> None:
    """A log with so many runs and entries, chained as the site's own is."""
    import hashlib

    path, number, previous = folder / "audit.log", 0, GENESIS
    lines = path.read_text().splitlines()
    number, previous = len(lines), json.loads(lines[-1])["hash"]
    study = "ab" * 32
    with path.open("a") as file:

        def put(event: str, **facts: Any) -> None:
            nonlocal number, previous
            entry = {**facts, "number": number, "event": event, "previous": previous, "time": "2026-11-10T08:00:00Z"}
            digest = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
            file.write(json.dumps({**entry, "hash": digest}, sort_keys=True) + "\n")
            number, previous = number + 1, digest

        for at in range(runs):
            run = f"{at:032x}"
            put("joined", run=run, study=study, proposed_by="south", roster=study, kind="sum", title="Old")
            put("ended", run=run, study=study, state="done")
        for at in range(entries - 2 * runs):
            put("refused", run=f"{at % runs:032x}", study=study, site="west", why="no")


def test_every_page_is_quick_at_a_thousand_runs_and_fifty_thousand_entries(tmp_path: Path) -> None:
    office = Consoles(tmp_path, NAMES)
    grow(office.office.net.sites["north"].home.folder, 1000, 50_000)
    with office:
        study = office.office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        office.office.net.approve(study)
        ada = office.sign_in("north")
        for path in paths(study.sha256, f"{5:032x}"):
            if path.startswith("/releases/"):
                continue
            best = 9.9
            for _ in range(3):
                before = office.do(time.thread_time)
                status = office.ask("north", "GET", path, headers=ada, token=False).status
                best = min(best, office.do(time.thread_time) - before)
            assert status == 200, path
            assert best < 0.1, (path, best)


def test_fifty_browsers_watch_one_page_and_it_is_rendered_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Consoles(tmp_path, NAMES) as office:
        port: ConsolePort = office.ports["north"]
        rendered: list[str] = []
        inner = port._pages.live._render

        async def counted(path: str) -> str:
            rendered.append(path)
            return await inner(path)

        monkeypatch.setattr(port._pages.live, "_render", counted)
        ada = office.sign_in("north")
        host, _, number = port.address.rpartition(":")

        async def watch() -> list[bytes]:
            streams = [await asyncio.open_connection(host, int(number)) for _ in range(50)]
            for _, writer in streams:
                writer.write(f"GET /events?of=/ HTTP/1.1\r\nHost: {port.address}\r\nCookie: {ada['Cookie']}\r\n\r\n".encode())
            heads = [await asyncio.wait_for(reader.readuntil(b"data: "), 60) for reader, _ in streams]
            for _, writer in streams:
                writer.close()
            return heads

        began = time.monotonic()
        heads = asyncio.run(watch())
        took = time.monotonic() - began
        assert len(heads) == 50
        assert all(b"200 OK" in head for head in heads)
        assert len(rendered) <= took / 0.4 + 2  # not fifty times as many
        until("who went is forgotten", lambda: not port._pages.live._watching, 120)


def test_many_changes_before_fifty_browsers_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks without the time between them: three minutes of a run. Some browsers never read what they are sent."""
    import gc

    from blindbayes.console import pages

    monkeypatch.setattr(pages, "_POLL_SECONDS", 0.0)

    async def test() -> tuple[int, int, int]:
        looks = 0

        async def render(path: str) -> str:
            nonlocal looks
            looks += 1
            return f"{looks} " + "x" * 2000

        live = pages.LiveParts(render)
        heard = 0

        async def browse(reads: bool) -> None:
            nonlocal heard
            async for _ in live.follow("/"):
                heard += 1
                if not reads:
                    await asyncio.sleep(3600)

        tasks = [asyncio.create_task(browse(at % 5 > 0)) for at in range(50)]
        while looks < 100:
            await asyncio.sleep(0)
        gc.collect()
        before = len(gc.get_objects())
        while looks < 500:
            await asyncio.sleep(0)
        gc.collect()
        grown = len(gc.get_objects()) - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await live.close()
        return grown, heard, looks

    grown, heard, looks = asyncio.run(test())
    assert heard > 40 * looks // 4
    assert grown < 2000, grown  # one object per look and browser would be 20,000
