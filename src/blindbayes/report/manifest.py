"""The manifest of a release: the files that are the same at every site that learned the result, and who signed them.

Each site writes its own release. What it received and paid is its own view, for which only that site vouches. The rest is the
same everywhere: the model, its card, explanation, plots and statement, and `claims.json`, the common part of the leak report.
The manifest, `common.json`, lists these files by the SHA-256 of their bytes, with study and run. Every party may sign it in
`common.signatures.json`: one folder then carries the signatures of all.

Logarithms may differ in their last bit between machines, and every site computes the parameters itself. So a site that signs
another's folder compares the model with its own by content, fractions to nine digits, and signs the bytes in that folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blindbayes.crypto.signatures import PUBLIC_BYTES, SigningKey, is_of, verify_lasting
from blindbayes.errors import ConfigError, DataError, IntegrityError
from blindbayes.io.untrusted import MAX_MODEL_BYTES, read_json, read_json_table

COMMON, COMMON_SIGNATURES, CLAIMS = "common.json", "common.signatures.json", "claims.json"
RUN, STUDY, LEAKAGE, INDEX = "run.json", "study.toml", "leakage.json", "index.html"
FORMAT = "blindbayes.common/1"
AGAIN = "ask for the release again"
_CONTEXT = b"blindbayes common release v1\n"
OWN = frozenset((INDEX, LEAKAGE, "leakage.html", "cost.json", RUN, "classes.csv", "receipts.json"))  # one site's view
SEALS = frozenset(("checksums", "signatures.json", COMMON, COMMON_SIGNATURES))
_RUN_ID = re.compile("[0-9a-f]{16,64}")
# The study file of each site carries the signatures that the site had seen when the run began.
_SIGNATURES = re.compile(
    rb"""^\[signatures\](?: # who agreed; outside the hash)?\n(?:["'\w.-]+ = "[0-9a-f]{128}"\n)*\n?""", re.MULTILINE
)
_FACTS = ("study", "codebook", "run", "title", "included")
_CLAIMED = ("protocols", "contributors", "may be opened", "follows")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The list of common files that all parties sign."""

    facts: Mapping[str, Any]  # study, codebook, run, title, included
    digests: Mapping[str, str]  # file -> SHA-256 of its bytes
    contents: Mapping[str, str]  # file -> digest of its content, which two sites compare

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Manifest | None:
        """Return the manifest of a release's files; None if they are not of a run between sites."""
        if RUN not in files:
            return None
        facts = read_json_table(files[RUN], RUN, error=DataError, hint=AGAIN)
        shared = sorted(name for name in files if name not in OWN | SEALS and not name.endswith((".share", ".spent")))
        contents = {name: digest_of(name, files[name]) for name in shared}
        digests = {name: hashlib.sha256(files[name]).hexdigest() for name in shared}
        return cls({name: facts.get(name) for name in _FACTS}, digests, contents)

    @property
    def text(self) -> bytes:
        """Canonical JSON, as signed and stored in common.json."""
        fields = {"format": FORMAT, **self.facts, "files": dict(self.digests)}
        return (json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()

    @property
    def learned(self) -> bool:
        """True if the site learned the result of the run."""
        return self.facts["included"] is not None or "model.json" in self.digests

    def difference(self, other: Manifest) -> str | None:
        """Return the first difference between two releases of one run, in words, or None."""
        for name in _FACTS:
            if self.facts[name] != other.facts[name]:
                return f"the {name} of the run"
        for name in sorted({*self.contents, *other.contents}):
            if self.contents.get(name) != other.contents.get(name):
                return name
        return None

    def sign(self, name: str, key: SigningKey) -> dict[str, str]:
        """Return a party's entry in common.signatures.json."""
        return signed_entry(key, _CONTEXT + name.encode() + b"\n" + self.text)


def signed_entry(key: SigningKey, payload: bytes) -> dict[str, str]:
    """Return the entry of a file of signatures: both public keys, and both signatures in one."""
    identity, ml_dsa = key.public.hex(), key.lasting_public[PUBLIC_BYTES:].hex()
    return {"identity": identity, "ml_dsa": ml_dsa, "signature": key.sign_lasting(payload).hex()}


def read_entry(entry: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return the public keys and the signatures of an entry."""
    return bytes.fromhex(entry["identity"]) + bytes.fromhex(entry["ml_dsa"]), bytes.fromhex(entry["signature"])


def claims_json(files: Mapping[str, bytes]) -> bytes:
    """Return `claims.json`: the part of the leak report that is the same at every site."""
    report = read_json_table(files[LEAKAGE], LEAKAGE, error=DataError, hint=AGAIN)
    claims = {"format": "blindbayes.claims/1", **{name: report.get(name) for name in _CLAIMED}}
    return (json.dumps(claims, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def digest_of(name: str, content: bytes) -> str:
    """Return the digest of a file for comparison between sites: of a model to nine digits, of a study without signatures."""
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


def read_manifest(files: Mapping[str, bytes]) -> Manifest:
    """Return the manifest of a release folder. Raises `DataError` if it does not match the files."""
    if RUN not in files:
        raise ConfigError(f"the folder holds no {RUN}: it is not a release of a run between sites and cannot be signed as one")
    manifest = Manifest.from_files(files)
    if manifest is None:
        raise DataError(f"{RUN} is not readable; {AGAIN}")
    # The run's id becomes the name of a folder and is printed: it must not be an arbitrary text.
    if not _RUN_ID.fullmatch(str(manifest.facts["run"])):
        raise DataError(f"{RUN} names no run of sites; {AGAIN}")
    if files.get(COMMON) != manifest.text:
        raise DataError(f"{COMMON} does not fit the files beside it; {AGAIN}")
    if files.get(CLAIMS) != (claims_json(files) if LEAKAGE in files else None):
        raise DataError(f"{LEAKAGE} does not say what {CLAIMS} says, which the parties sign; do not rely on this folder")
    return manifest


def verified_signatures(files: Mapping[str, bytes], manifest: Manifest, identities: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the parties that have signed, in the study's order.

    `identities` are those of the study, or, where a card is known, both keys on it. Raises `DataError` for an invalid
    signature, or one by somebody who is not a party.
    """
    try:
        entries = {str(name): read_entry(entry) for name, entry in _entries(files).items()}
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{COMMON_SIGNATURES} is not readable; {AGAIN}") from None
    for name, (public, signature) in entries.items():
        require_key(name, public, identities.get(name, b""))
        try:
            verify_lasting(public, _CONTEXT + name.encode() + b"\n" + manifest.text, signature, party=name)
        except IntegrityError:
            raise DataError(f"the signature of {name} does not fit {COMMON}; {AGAIN}") from None
    return tuple(name for name in identities if name in entries)


def require_key(name: str, public: bytes, identity: bytes) -> None:
    """Raise `DataError` unless a party signed with the key that the study names, or with both keys on its card."""
    if not is_of(public, identity):
        same = identity[:PUBLIC_BYTES] == public[:PUBLIC_BYTES]
        what = "another ML-DSA key than on its card" if same else "a key that the study does not name for it"
        raise DataError(f"{name} signed with {what}; do not rely on this folder")


def add_signature(files: Mapping[str, bytes], own: Mapping[str, bytes], name: str, key: SigningKey) -> bytes:
    """Return `common.signatures.json` of a folder with the signature of a site whose own release of the run is `own`.

    Raises `DataError` and names the file if the site's own release differs. The site must have signed that release itself,
    when the run ended.
    """
    from blindbayes.report.checksums import verify_files

    if verify_files(own).signers.get(name) != key.lasting_public:
        raise DataError(f"{name} did not sign its own release of this run; not signed")
    manifest, mine = read_manifest(files), read_manifest(own)
    if not mine.learned:
        raise ConfigError(f"{name} did not learn the result of this run, so it has nothing to compare the folder with")
    if (differs := manifest.difference(mine)) is not None:
        raise DataError(f"{differs} differs from this site's own release of the run: not signed. Ask who made the folder")
    return signatures_text({**_entries(files), name: manifest.sign(name, key)})


def merged_signatures(
    files: Mapping[str, bytes], others: bytes, manifest: Manifest, identities: Mapping[str, bytes]
) -> tuple[bytes, tuple[str, ...]]:
    """Return `common.signatures.json` of a folder with those that other sites made for theirs, and who made these.

    Raises `DataError` if one of them does not fit the common files of this folder.
    """
    added = {COMMON_SIGNATURES: others}
    names = verified_signatures(added, manifest, identities)
    return signatures_text({**_entries(added), **_entries(files)}), names


def _entries(files: Mapping[str, bytes]) -> dict[str, Any]:
    return read_json_table(files.get(COMMON_SIGNATURES, b"{}"), COMMON_SIGNATURES, error=DataError, hint=AGAIN)


def signatures_text(entries: Mapping[str, Mapping[str, str]]) -> bytes:
    return (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode()
