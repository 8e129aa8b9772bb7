"""Checksums of a release, in the format of `sha256sum`, and signatures over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from blindbayes.crypto.signatures import SigningKey, verify
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
    Common,
    claims_of,
    signatures_text,
)
from blindbayes.report.page import index_page

CHECKSUMS, SIGNATURES = "checksums", "signatures.json"
PRIVATE = (".share", ".share.spent")  # a simulation leaves the parties' shares of a model beside its release
_CONTEXT = b"blindbayes release v1\n"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a release's checksums and signatures say."""

    files: int
    signers: Mapping[str, bytes]  # party -> public key of the signature, which is good


def seal_files(
    files: Mapping[str, bytes], signers: Mapping[str, SigningKey] | None = None, cover: Cover | None = None
) -> dict[str, bytes]:
    """The files with an index page, their checksums and, if anybody signs, the signatures over the checksums.

    A release of a run between sites also gets the list of what is the same at all of them, signed likewise.
    """
    if RUN in files and LEAKAGE in files:
        files = {**files, CLAIMS: claims_of(files)}
    files = {**files, INDEX: index_page(cover or Cover.of(files), files).encode()}
    common = Common.of(files)
    if common is not None:
        files = {**files, COMMON: common.text}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items())]
    sealed = {**files, CHECKSUMS: "".join(lines).encode()}
    if signers:
        payload = _CONTEXT + sealed[CHECKSUMS]
        found = {name: {"identity": key.public.hex(), "signature": key.sign(payload).hex()} for name, key in signers.items()}
        sealed[SIGNATURES] = (json.dumps(found, indent=2, sort_keys=True) + "\n").encode()
        if common is not None and common.learned:
            sealed[COMMON_SIGNATURES] = signatures_text({name: common.sign(name, key) for name, key in signers.items()})
    return sealed


def verify_files(files: Mapping[str, bytes]) -> Verified:
    """Raise `DataError` unless every file is listed and as it was, nothing is missing, and every signature is good."""
    listed: dict[str, str] = {}
    try:
        for line in files[CHECKSUMS].decode().split("\n")[:-1]:
            digest, name = line.split("  ", 1)
            if name in listed:
                raise ValueError(name)
            listed[name] = digest
    except KeyError:
        raise DataError(
            "the folder has no checksums: it is no release, or an incomplete one; name a folder that `study run --out` or "
            "`demo --out` wrote, or one under releases/ of a site"
        ) from None
    except ValueError:
        raise DataError("the checksums are not readable; ask for the release again") from None
    beside = () if RUN in files else PRIVATE
    there = {name for name in files if name not in (CHECKSUMS, SIGNATURES, COMMON_SIGNATURES) and not name.endswith(beside)}
    if missing := sorted(set(listed) - there):
        raise DataError(f"{missing[0]} is missing; ask for the release again")
    if added := sorted(there - set(listed)):
        raise DataError(f"{added[0]} is not part of the release; take it out of the folder")
    for name, digest in listed.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise DataError(f"{name} was changed after the release; ask for it again")
    signers: dict[str, bytes] = {}
    if RUN in files and SIGNATURES not in files:
        raise DataError(f"{SIGNATURES} is missing: the site that made this folder does not vouch for it; {AGAIN}")
    if SIGNATURES in files:
        payload = _CONTEXT + files[CHECKSUMS]
        try:
            for name, entry in read_json_table(files[SIGNATURES], "signatures.json", error=DataError, hint=AGAIN).items():
                signers[name] = bytes.fromhex(entry["identity"])
                verify(signers[name], payload, bytes.fromhex(entry["signature"]), party=name)
        except IntegrityError as cause:
            raise DataError(f"the signature of {cause.party} does not fit the checksums; ask for the release again") from None
        except DataError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DataError("the signatures are not readable; ask for the release again") from None
    return Verified(len(listed), signers)
