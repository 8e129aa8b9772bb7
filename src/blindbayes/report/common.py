"""What is the same at every site that learned the result of a run, and who signed it.

Each site writes its own release: its leak report and its cost are its own. The rest (the model, its card, explanation, plots
and statement) is the same everywhere. `common.json` lists it by digest, with study and run, and every party may sign that list
into `common.signatures.json`: one folder then carries the signatures of all.

Logarithms may differ in their last bit from one machine to another, and every site works out the parameters itself: so the
model enters by its content with fractions to nine digits, every other file by its bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blindbayes.errors import ConfigError, DataError, IntegrityError
from blindbayes.foreign import read_json, read_json_table
from blindbayes.model.file import MAX_BYTES
from blindbayes.primitives.signatures import SigningKey, verify

COMMON, COMMON_SIGNATURES = "common.json", "common.signatures.json"
FORMAT = "blindbayes.common/1"
_CONTEXT = b"blindbayes common release v1\n"
_OWN = frozenset(
    (
        "leakage.json",
        "leakage.html",
        "cost.json",
        "run.json",
        "study.toml",
        "checksums",
        "signatures.json",
        "classes.csv",  # with columns of the site's own beside them
        COMMON,
        COMMON_SIGNATURES,
    )
)
AGAIN = "ask for the release again"
_RUN = re.compile("[0-9a-f]{16,64}")
_FACTS = ("study", "codebook", "run", "title", "included")


@dataclass(frozen=True, slots=True)
class Common:
    """The list that all parties sign."""

    facts: Mapping[str, Any]  # study, codebook, run, title, included
    digests: Mapping[str, str]  # file -> SHA-256

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Common | None:
        """Of the files of a release; None if they are not of a run between sites."""
        if "run.json" not in files:
            return None
        facts = read_json_table(files["run.json"], "run.json", error=DataError, hint=AGAIN)
        shared = {
            name: content for name, content in files.items() if name not in _OWN and not name.endswith((".share", ".spent"))
        }
        digests = {name: digest_of(name, content) for name, content in sorted(shared.items())}
        return cls({name: facts.get(name) for name in _FACTS}, digests)

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
        """The first thing in which two lists differ, in words; None if they are the same."""
        for name in _FACTS:
            if self.facts[name] != other.facts[name]:
                return f"the {name} of the run"
        for name in sorted({*self.digests, *other.digests}):
            if self.digests.get(name) != other.digests.get(name):
                return name
        return None

    def sign(self, name: str, key: SigningKey) -> dict[str, str]:
        """A party's entry in common.signatures.json."""
        return {"identity": key.public.hex(), "signature": key.sign(_CONTEXT + name.encode() + b"\n" + self.text).hex()}


def digest_of(name: str, content: bytes) -> str:
    """What identifies a common file."""
    if name == "model.json":
        plain = read_json(content, "model.json", most_bytes=MAX_BYTES, error=DataError, hint=AGAIN)
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
    found = _list_of(files)
    # The run's name becomes the name of a folder, and stands on a screen: a made-up one could lead anywhere.
    if not _RUN.fullmatch(str(found.facts["run"])):
        raise DataError("run.json names no run of sites; ask for the release again")
    if files.get(COMMON) != found.text:
        raise DataError(f"{COMMON} does not fit the files beside it; ask for the release again")
    return found


def _list_of(files: Mapping[str, bytes]) -> Common:
    found = Common.of(files)
    if found is None:
        raise ConfigError(
            "the folder holds no run.json: it is no release of a run between sites, and nobody can sign it as one"
        )
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
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{COMMON_SIGNATURES} is not readable; ask for the release again") from None
    for name, (identity, signature) in entries.items():
        if identities.get(name) != identity:
            raise DataError(f"{name} signed with a key that the study does not name for it; do not rely on this folder")
        try:
            verify(identity, _CONTEXT + name.encode() + b"\n" + common.text, signature, party=name)
        except IntegrityError:
            raise DataError(f"the signature of {name} does not fit {COMMON}; ask for the release again") from None
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
    entries = _entries(files)
    return signatures_text({**entries, name: common.sign(name, key)})


def _entries(files: Mapping[str, bytes]) -> dict[str, Any]:
    return read_json_table(files.get(COMMON_SIGNATURES, b"{}"), COMMON_SIGNATURES, error=DataError, hint=AGAIN)


def signatures_text(entries: Mapping[str, Mapping[str, str]]) -> bytes:
    """The bytes of common.signatures.json."""
    return (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode()
