"""What is the same at every site that learned the result of a run, and who signed it.

Each site writes its own release: what it received and what it paid are its own view, and the site that made the folder vouches
for them alone. The rest is the same everywhere: the model, its card, explanation, plots and statement, and `claims.json`, the
part of the leak report that all rely on. `common.json` lists those files by the SHA-256 of their bytes, with study and run, and
every party may sign that list into `common.signatures.json`: one folder then carries the signatures of all.

Logarithms may differ in their last bit from one machine to another, and every site works out the parameters itself. So a
site that signs another's folder compares the model with its own by content, fractions to nine digits, and signs the bytes that
it was shown.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blindbayes.crypto.signatures import SigningKey, verify
from blindbayes.errors import ConfigError, DataError, IntegrityError
from blindbayes.io.untrusted import MAX_MODEL_BYTES, read_json, read_json_table

COMMON, COMMON_SIGNATURES, CLAIMS = "common.json", "common.signatures.json", "claims.json"
RUN, STUDY, LEAKAGE, INDEX = "run.json", "study.toml", "leakage.json", "index.html"
FORMAT = "blindbayes.common/1"
AGAIN = "ask for the release again"
_CONTEXT = b"blindbayes common release v1\n"
OWN = frozenset((INDEX, LEAKAGE, "leakage.html", "cost.json", RUN, "classes.csv", "receipts.json"))  # a site's own view
SEALS = frozenset(("checksums", "signatures.json", COMMON, COMMON_SIGNATURES))
_RUN_ID = re.compile("[0-9a-f]{16,64}")
# Each site's study file carries the signatures that it had seen when the run began.
_SIGNATURES = re.compile(
    rb"""^\[signatures\](?: # who agreed; outside the hash)?\n(?:["'\w.-]+ = "[0-9a-f]{128}"\n)*\n?""", re.MULTILINE
)
_FACTS = ("study", "codebook", "run", "title", "included")
_CLAIMED = ("protocols", "contributors", "may be opened", "follows")


@dataclass(frozen=True, slots=True)
class Common:
    """The list that all parties sign."""

    facts: Mapping[str, Any]  # study, codebook, run, title, included
    digests: Mapping[str, str]  # file -> SHA-256 of its bytes
    contents: Mapping[str, str]  # file -> what two sites compare

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Common | None:
        """Of the files of a release; None if they are not of a run between sites."""
        if RUN not in files:
            return None
        facts = read_json_table(files[RUN], RUN, error=DataError, hint=AGAIN)
        shared = sorted(name for name in files if name not in OWN | SEALS and not name.endswith((".share", ".spent")))
        contents = {name: digest_of(name, files[name]) for name in shared}
        digests = {name: hashlib.sha256(files[name]).hexdigest() for name in shared}
        return cls({name: facts.get(name) for name in _FACTS}, digests, contents)

    @property
    def text(self) -> bytes:
        """Canonical JSON: what is signed, and what stands in common.json."""
        fields = {"format": FORMAT, **self.facts, "files": dict(self.digests)}
        return (json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()

    @property
    def learned(self) -> bool:
        """Whether the site learned the result of the run."""
        return self.facts["included"] is not None or "model.json" in self.digests

    def difference(self, other: Common) -> str | None:
        """The first thing in which two releases of one run differ, in words; None if they say the same."""
        for name in _FACTS:
            if self.facts[name] != other.facts[name]:
                return f"the {name} of the run"
        for name in sorted({*self.contents, *other.contents}):
            if self.contents.get(name) != other.contents.get(name):
                return name
        return None

    def sign(self, name: str, key: SigningKey) -> dict[str, str]:
        """A party's entry in common.signatures.json."""
        return {"identity": key.public.hex(), "signature": key.sign(_CONTEXT + name.encode() + b"\n" + self.text).hex()}


def claims_of(files: Mapping[str, bytes]) -> bytes:
    """`claims.json`: what the leak report says of the run itself, the same wherever it is written."""
    report = read_json_table(files[LEAKAGE], LEAKAGE, error=DataError, hint=AGAIN)
    claims = {"format": "blindbayes.claims/1", **{name: report.get(name) for name in _CLAIMED}}
    return (json.dumps(claims, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def digest_of(name: str, content: bytes) -> str:
    """What two sites compare of a file: its bytes; the model by its content to nine digits, the study without signatures."""
    if name == STUDY:
        content = _SIGNATURES.sub(b"", content)
    if name == "model.json":
        plain = read_json(content, "model.json", max_bytes=MAX_MODEL_BYTES, error=DataError, hint=AGAIN)
        content = json.dumps(_rounded(plain), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return hashlib.sha256(content).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def common_of(files: Mapping[str, bytes]) -> Common:
    """The list of a release folder, checked against its files. Raises `DataError` if it does not fit them."""
    if RUN not in files:
        raise ConfigError(f"the folder holds no {RUN}: it is no release of a run between sites, and nobody can sign it as one")
    found = Common.of(files)
    if found is None:
        raise DataError(f"{RUN} is not readable; {AGAIN}")
    # The run's name becomes the name of a folder, and stands on a screen: a made-up one could lead anywhere.
    if not _RUN_ID.fullmatch(str(found.facts["run"])):
        raise DataError(f"{RUN} names no run of sites; {AGAIN}")
    if files.get(COMMON) != found.text:
        raise DataError(f"{COMMON} does not fit the files beside it; {AGAIN}")
    if files.get(CLAIMS) != (claims_of(files) if LEAKAGE in files else None):
        raise DataError(f"{LEAKAGE} does not say what {CLAIMS} says, which the parties sign; do not rely on this folder")
    return found


def signatures_of(files: Mapping[str, bytes], common: Common, identities: Mapping[str, bytes]) -> tuple[str, ...]:
    """Which parties have signed, in the study's order. `identities` are those of the study.

    Raises `DataError` for a signature that is not good, or of somebody who is no party.
    """
    try:
        entries = {
            str(name): (bytes.fromhex(entry["identity"]), bytes.fromhex(entry["signature"]))
            for name, entry in _entries(files).items()
        }
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{COMMON_SIGNATURES} is not readable; {AGAIN}") from None
    for name, (identity, signature) in entries.items():
        if identities.get(name) != identity:
            raise DataError(f"{name} signed with a key that the study does not name for it; do not rely on this folder")
        try:
            verify(identity, _CONTEXT + name.encode() + b"\n" + common.text, signature, party=name)
        except IntegrityError:
            raise DataError(f"the signature of {name} does not fit {COMMON}; {AGAIN}") from None
    return tuple(name for name in identities if name in entries)


def signed_by(files: Mapping[str, bytes], own: Mapping[str, bytes], name: str, key: SigningKey) -> bytes:
    """`common.signatures.json` of a folder with one more signature, of a site whose own release of the run is `own`.

    Raises `DataError`, naming the file, if the site's own release holds something else. Only a release that the site itself
    signed when the run ended is one to compare with.
    """
    from blindbayes.report.checksums import verify_files

    if verify_files(own).signers.get(name) != key.public:
        raise DataError(f"{name} did not sign the release that it is to compare with; not signed")
    common, mine = common_of(files), common_of(own)
    if not mine.learned:
        raise ConfigError(f"{name} did not learn the result of this run, so it has nothing to compare the folder with")
    if (differs := common.difference(mine)) is not None:
        raise DataError(f"{differs} differs from this site's own release of the run: not signed. Ask who made the folder")
    return signatures_text({**_entries(files), name: common.sign(name, key)})


def _entries(files: Mapping[str, bytes]) -> dict[str, Any]:
    return read_json_table(files.get(COMMON_SIGNATURES, b"{}"), COMMON_SIGNATURES, error=DataError, hint=AGAIN)


def signatures_text(entries: Mapping[str, Mapping[str, str]]) -> bytes:
    """The bytes of common.signatures.json."""
    return (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode()
