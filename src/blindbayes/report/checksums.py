"""Checksums of a release, in the format of `sha256sum`, and signatures over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from blindbayes.crypto.signatures import SigningKey, verify_lasting
from blindbayes.errors import DataError, IntegrityError
from blindbayes.io.untrusted import read_json_table
from blindbayes.report.cover_sheet import Cover
from blindbayes.report.manifest import (
    AGAIN,
    CLAIMS,
    COMMON,
    COMMON_SIGNATURES,
    INDEX,
    LEAKAGE,
    RUN,
    Manifest,
    claims_json,
    read_entry,
    signatures_text,
    signed_entry,
)
from blindbayes.report.page import index_page

CHECKSUMS, SIGNATURES = "checksums", "signatures.json"
PRIVATE = (".share", ".share.spent")  # a simulation stores the parties' shares next to its release
_CONTEXT = b"blindbayes release v1\n"


@dataclass(frozen=True, slots=True)
class Verified:
    """A release whose checksums and signatures were verified."""

    files: int
    signers: Mapping[str, bytes]  # party -> both public keys of its valid signature


def seal_files(
    files: Mapping[str, bytes], signers: Mapping[str, SigningKey] | None = None, cover: Cover | None = None
) -> dict[str, bytes]:
    """Return the files with an index page, checksums and the signatures over the checksums.

    A release of a run between sites also gets its manifest, signed by the same keys.
    """
    if RUN in files and LEAKAGE in files:
        files = {**files, CLAIMS: claims_json(files)}
    files = {**files, INDEX: index_page(cover or Cover.from_files(files), files).encode()}
    manifest = Manifest.from_files(files)
    if manifest is not None:
        files = {**files, COMMON: manifest.text}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items())]
    sealed = {**files, CHECKSUMS: "".join(lines).encode()}
    if signers:
        payload = _CONTEXT + sealed[CHECKSUMS]
        entries = {name: signed_entry(key, payload) for name, key in signers.items()}
        sealed[SIGNATURES] = (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode()
        if manifest is not None and manifest.learned:
            sealed[COMMON_SIGNATURES] = signatures_text({name: manifest.sign(name, key) for name, key in signers.items()})
    return sealed


def verify_files(files: Mapping[str, bytes]) -> Verified:
    """Raise `DataError` unless the files are exactly the listed ones, unchanged, and every signature is valid."""
    listed = _listed(files)
    ignored = () if RUN in files else PRIVATE
    present = {name for name in files if name not in (CHECKSUMS, SIGNATURES, COMMON_SIGNATURES) and not name.endswith(ignored)}
    if missing := sorted(set(listed) - present):
        raise DataError(f"{missing[0]} is missing; ask for the release again")
    if added := sorted(present - set(listed)):
        raise DataError(f"{added[0]} is not part of the release; remove it from the folder")
    for name, digest in listed.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise DataError(f"{name} was changed after the release; ask for it again")
    return Verified(len(listed), _signers(files))


def _listed(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the digests in the checksums by file."""
    listed: dict[str, str] = {}
    try:
        for line in files[CHECKSUMS].decode().split("\n")[:-1]:
            digest, name = line.split("  ", 1)
            if name in listed:
                raise ValueError(name)
            listed[name] = digest
    except KeyError:
        if inner := [name.removesuffix(f"/{CHECKSUMS}") for name in files if name.endswith(f"/{CHECKSUMS}")]:
            raise DataError(f"the folder is not a release, but {inner[0]!r} in it looks like one; name that folder") from None
        raise DataError(
            "the folder has no checksums: it is not a release, or an incomplete one; name a folder that `study run --out` or "
            "`demo --out` wrote, or one under releases/ of a site"
        ) from None
    except ValueError:
        raise DataError("the checksums are not readable; ask for the release again") from None
    return listed


def _signers(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the public keys of the signers, all of whose signatures are valid, by name."""
    signers: dict[str, bytes] = {}
    if RUN in files and SIGNATURES not in files:
        raise DataError(f"{SIGNATURES} is missing: the site that made this folder did not sign it; {AGAIN}")
    if SIGNATURES in files:
        payload = _CONTEXT + files[CHECKSUMS]
        try:
            for name, entry in read_json_table(files[SIGNATURES], "signatures.json", error=DataError, hint=AGAIN).items():
                signers[name], signature = read_entry(entry)
                verify_lasting(signers[name], payload, signature, party=name)
        except IntegrityError as cause:
            raise DataError(f"the signature of {cause.party} does not fit the checksums; ask for the release again") from None
        except DataError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DataError("the signatures are not readable; ask for the release again") from None
    return signers
