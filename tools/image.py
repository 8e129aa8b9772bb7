"""Build the image of deploy/Containerfile without a registry or an engine: `make image` (Debian's mmdebstrap and buildah).

    python3 tools/image.py out/image     # image.tar (podman load), rootfs.tar (its file system), config.json (its settings)

It needs no privileges: unless root calls it, buildah works in a user namespace (/etc/subuid). The base is a Debian that
mmdebstrap makes from Debian's own archive, by its signatures. It and the steps of the build are kept: to renew them,
`buildah unshare rm -rf out/image`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITE = "trixie"  # as in deploy/Containerfile
CONTEXT = ("requirements-image.lock", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src")


def main() -> None:
    """Build into a folder; the first fault ends the program with a message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--certificates",
        default=os.environ.get("PIP_CERT"),
        help="CA certificates (PEM) of a network that intercepts TLS; used while building, not part of the image [PIP_CERT]",
    )
    options = parser.parse_args()
    for program, package in (("mmdebstrap", "mmdebstrap"), ("buildah", "buildah"), ("newuidmap", "uidmap")):
        if shutil.which(program) is None:
            sys.exit(f"image: {program} is missing: apt-get install {package}")
    out = options.folder.resolve()
    out.mkdir(parents=True, exist_ok=True)
    base = out / "base.tar"
    if not base.exists():
        run("mmdebstrap", "--variant=minbase", SUITE, str(out / "base.part.tar"))
        (out / "base.part.tar").rename(base)
    with tempfile.TemporaryDirectory() as raw:
        build(base, out, Path(raw), options.certificates)


def build(base: Path, out: Path, work: Path, certificates: str | None) -> None:
    """Build the image from a base and export its file system; unchanged steps are taken from out/store."""
    buildah = ("buildah", "--storage-driver=overlay", "--root", str(out / "store"), "--runroot", str(out / "run"))
    if not output(*buildah, "images", "--quiet", "--filter=reference=localhost/base"):
        container = output(*buildah, "from", "scratch")
        run(*buildah, "add", container, str(base))
        run(*buildah, "commit", "--rm", container, "localhost/base")
    context = work / "context"
    context.mkdir()
    for name in CONTEXT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__", "_kernels.so*"))
        else:
            shutil.copy2(ROOT / name, context)
    mounted = []
    if certificates:
        (work / "pip.conf").write_text("[global]\ncert = /run/certificates.pem\n", encoding="utf-8")
        mounted = [f"--volume={certificates}:/run/certificates.pem:ro", f"--volume={work / 'pip.conf'}:/etc/pip.conf:ro"]
    settings = ("--build-arg=BASE=localhost/base", "--pull-never", "--layers", "--isolation=chroot", "--network=host")
    form = "--format=docker"  # OCI has no HEALTHCHECK
    file = ROOT / "deploy" / "Containerfile"
    run(*buildah, "build", *settings, form, *mounted, "--tag=localhost/blindbayes", f"--file={file}", str(context))
    described = json.loads(output(*buildah, "inspect", "--type=image", "localhost/blindbayes"))
    (out / "config.json").write_text(json.dumps(described["Docker"]["config"], indent=1) + "\n", encoding="utf-8")
    container = output(*buildah, "from", "--pull-never", "localhost/blindbayes")
    pack = f'tar -C "$({" ".join(buildah)} mount {container})" --numeric-owner -cf "$1" .'
    owner = () if os.geteuid() == 0 else (*buildah, "unshare")  # who is root may mount as it is
    run(*owner, "sh", "-ec", pack, "pack", str(out / "rootfs.tar"))
    run(*buildah, "rm", container)
    (out / "image.tar").unlink(missing_ok=True)
    run(*buildah, "push", "localhost/blindbayes", f"docker-archive:{out / 'image.tar'}:blindbayes:latest")
    for name in ("image.tar", "rootfs.tar"):
        print(f"{(out / name).stat().st_size / 1e6:6.0f} MB  {out / name}")  # noqa: T201


def run(*command: str) -> None:
    """Run a command and end the program if it fails."""
    done = subprocess.run(command, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"image: {' '.join(command[:2])} ... {command[-1]} ended with {done.returncode}")


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
