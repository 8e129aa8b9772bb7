"""Releases of one run between three sites, as their agents write them."""

from __future__ import annotations

import json
from pathlib import Path

from blindbayes import RowStudy
from blindbayes.datasets import hospitals
from blindbayes.io.files import read_folder, write_folder
from blindbayes.report.checksums import seal_files
from blindbayes.report.manifest import COMMON_SIGNATURES, add_signature
from blindbayes.report.receipts import RECEIPTS, Receipt, pack, receipts_text
from blindbayes.testing.loopback import Loopback

DATA = hospitals(600)
RUN = "ab" * 16


def released_sites(folder: Path) -> Loopback:
    """Three sites, each with its own release of one run under releases/."""
    net = Loopback(folder, dict.fromkeys(DATA.tables, "rows.duckdb"))
    study = net.make_study(DATA.codebook, title="readmission")
    result = RowStudy(DATA.codebook).simulate(DATA.tables)
    facts = {"study": study.sha256, "codebook": DATA.codebook.sha256, "run": RUN, "title": study.title}
    facts |= {"included": list(result.included), "went_on_without": []}
    receipts = {
        role: pack(Receipt(()).sign(study.roster.sha256, RUN, role, net.sites[study.host(role)].identity.signing))
        for role in study.roles
    }
    signed = receipts_text(study.roster.sha256, RUN, {role: study.identity(role) for role in study.roles}, receipts)
    for name, site in net.sites.items():
        own = {"leakage.html": f"<p>{name}</p>".encode(), "run.json": json.dumps(facts).encode()}
        own["study.toml"] = study.sign(name, site.identity.signing).to_toml().encode()  # each holds its own signature
        own[RECEIPTS] = signed
        files = seal_files({**result.files(), **own}, {name: site.identity.signing})
        write_folder(site.home.folder / "releases" / RUN, files)
    return net


def release_of(sites: Loopback, name: str) -> Path:
    """A site's own release."""
    return sites.sites[name].home.folder / "releases" / RUN


def signed_by_all(sites: Loopback, maker: str = "north") -> dict[str, bytes]:
    """The maker's release with everybody's signature."""
    files = read_folder(release_of(sites, maker))
    for name, site in sites.sites.items():
        files[COMMON_SIGNATURES] = add_signature(files, read_folder(release_of(sites, name)), name, site.identity.signing)
    return files
