"""Papers for the privacy officer, made from a run: leak report, sequence diagram, model card, plots, checksums.

Everything is computed from the run's transcript and the protocol's SPEC; no number is typed by hand. Pages are plain HTML
without scripts, and hold names of parties and columns, labels and counts of messages, never a value. Nothing here touches a
disk: every paper is text or bytes, and `storage.folder` writes them.
"""

from blindbayes.report.card import model_card
from blindbayes.report.checksums import CHECKSUMS, SIGNATURES, Verified, seal_files, verify_files
from blindbayes.report.common import COMMON, COMMON_SIGNATURES, Common, common_of, digest_of, signatures_of, signed_by
from blindbayes.report.cover import Cover, cover_template
from blindbayes.report.leakage import (
    About,
    Flow,
    LeakReport,
    PartyView,
    ReceivedKind,
    coalition_sentences,
    follows_from_sum,
    leak_report,
)
from blindbayes.report.page import index_page, leak_page, model_page
from blindbayes.report.release import model_files, release_files, run_files
from blindbayes.report.spec import Coalition, Spec, protocols, read_spec
from blindbayes.report.vouching import Vouched, vouched

__all__ = [
    "CHECKSUMS",
    "COMMON",
    "COMMON_SIGNATURES",
    "SIGNATURES",
    "About",
    "Coalition",
    "Common",
    "Cover",
    "Flow",
    "LeakReport",
    "PartyView",
    "ReceivedKind",
    "Spec",
    "Verified",
    "Vouched",
    "coalition_sentences",
    "common_of",
    "cover_template",
    "digest_of",
    "follows_from_sum",
    "index_page",
    "leak_page",
    "leak_report",
    "model_card",
    "model_files",
    "model_page",
    "protocols",
    "read_spec",
    "release_files",
    "run_files",
    "seal_files",
    "signatures_of",
    "signed_by",
    "verify_files",
    "vouched",
]
