"""Containers of the image that `make image` built, started as compose or a kubelet would from the files in deploy/.

crun runs them, each in a network namespace on one bridge; they find each other by /etc/hosts. Making namespaces needs root; the
containers have the user, the rights and the mounts that their file grants. A named volume belongs to whom Docker would give it,
a claim of a pod is handed to its fsGroup as a kubelet does.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from support import programs

ROOT = Path(__file__).parents[2]
IMAGE = Path(os.environ.get("BLINDBAYES_IMAGE", ROOT / "out" / "image"))
_NETWORK = "10.77.0"
# crun knows pure cgroup v1 and v2 alone; no limit is set here, so an empty v2 tree does on machines that have both.
_CRUN = """
if [ -d /sys/fs/cgroup/unified ]; then umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; fi
exec crun --cgroup-manager=disabled "$@"
"""
_GET = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print(0)
"""


@dataclass(frozen=True)
class Mount:
    """A folder of this machine, or memory, at a path of the container."""

    target: str
    source: Path | None = None
    read_only: bool = False


@dataclass(frozen=True)
class Container:
    """What one container runs and may do."""

    host: str
    args: list[str]
    env: dict[str, str]
    user: int
    group: int
    read_only: bool
    capabilities: list[str]
    escalation: bool
    mounts: list[Mount] = field(default_factory=list)


def require_image() -> Path:
    """Return the folder of the built image; skip the test without it, or without what runs it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root")
    if not (IMAGE / "rootfs.tar").exists():
        pytest.skip("there is no image: make image")
    for name, package in (("crun", "crun"), ("ip", "iproute2")):
        programs.require(name, package)
    return IMAGE


def image_settings(image: Path) -> dict[str, Any]:
    """Return user, environment and commands that the image sets."""
    return dict(json.loads((image / "config.json").read_text()))


def of_service(trial: dict[str, Any], name: str, image: Path, volumes: Path, beside: Path) -> Container:
    """Return the container of a service of compose.yaml; a relative path there is relative to `beside`."""
    service, settings = trial["services"][name], image_settings(image)
    mounts = [Mount(target) for target in service["tmpfs"]]
    for volume in service["volumes"]:
        source, target, *options = volume.split(":")
        place = beside / source if source.startswith(".") else volumes / source
        mounts.append(Mount(target, place, read_only=options == ["ro"]))
    uid = int(settings["User"])
    environment = dict(line.split("=", 1) for line in settings["Env"]) | service["environment"]
    dropped = service["cap_drop"] == ["ALL"]
    return Container(
        host=service["hostname"],
        args=service["entrypoint"],
        env=environment,
        user=uid,
        group=uid,
        read_only=service["read_only"],
        capabilities=[] if dropped else ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETUID"],
        escalation="no-new-privileges:true" not in service["security_opt"],
        mounts=mounts,
    )


def of_pod(
    pod: dict[str, Any], container: dict[str, Any], host: str, image: Path, volumes: Path, settings: dict[str, str]
) -> Container:
    """Return a container of a pod's spec; `volumes` holds a folder per claim and secret, `settings` is the config map."""
    preset, rights, person = image_settings(image), container["securityContext"], pod["securityContext"]
    environment = dict(line.split("=", 1) for line in preset["Env"])
    for each in container["env"]:
        environment[each["name"]] = each["value"] if "value" in each else settings[each["valueFrom"]["configMapKeyRef"]["key"]]
    places = {}
    for each in pod["volumes"]:
        if claim := each.get("persistentVolumeClaim"):
            places[each["name"]] = hand_over(volumes / claim["claimName"], person["fsGroup"])
        elif secret := each.get("secret"):
            places[each["name"]] = as_secret(volumes / "secrets" / secret["secretName"], secret, person["fsGroup"])
    dropped = rights["capabilities"]["drop"] == ["ALL"]
    return Container(
        host=host,
        args=[*container.get("command", preset["Entrypoint"]), *container.get("args", preset["Cmd"])],
        env=environment,
        user=person["runAsUser"],
        group=person["runAsGroup"],
        read_only=rights["readOnlyRootFilesystem"],
        capabilities=[] if dropped else ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SETUID"],
        escalation=rights["allowPrivilegeEscalation"],
        mounts=[
            Mount(each["mountPath"], places.get(each["name"]), read_only=each.get("readOnly", False))
            for each in container["volumeMounts"]
        ],
    )


def hand_over(claim: Path, group: int) -> Path:
    """Give a claim to a group as a kubelet does for `OnRootMismatch`: all that is in it, unless its root is right already."""
    claim.mkdir(parents=True, exist_ok=True)
    state = claim.stat()
    if state.st_gid != group or state.st_mode & 0o2770 != 0o2770:
        for path in (claim, *claim.rglob("*")):
            os.chown(path, -1, group)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o2770 if path.is_dir() else 0o660))
    return claim


def as_secret(source: Path, secret: dict[str, Any], group: int) -> Path:
    """Copy the keys that a pod names out of a secret, with its mode, to its group."""
    place = source.parent / f"{source.name}-{'-'.join(item['key'] for item in secret['items'])}"
    place.mkdir(exist_ok=True)
    for item in secret["items"]:
        path = place / item["path"]
        shutil.copy(source / item["key"], path)
        os.chown(path, 0, group)
        path.chmod(secret["defaultMode"])
    return place


class Network:
    """Containers of one image that reach each other, and nothing else."""

    def __init__(self, image: Path, work: Path, hosts: list[str]) -> None:
        self._work, self._hosts = work, hosts
        self._prefix = f"bb{os.getpid()}"
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._root = image / "rootfs"

    def __enter__(self) -> Self:
        packed = self._root.with_suffix(".tar")
        if not self._root.exists() or self._root.stat().st_mtime < packed.stat().st_mtime:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root.mkdir()
            subprocess.run(["tar", "-xpf", packed, "--numeric-owner", "-C", self._root], check=True)
            os.utime(self._root)
        try:
            self._join()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise AssertionError(f"the network cannot be made: {error.stderr}") from None
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._started):
            self.stop(name)
        for host in ("hub", *self._hosts):
            subprocess.run(["ip", "netns", "del", f"{self._prefix}-{host}"], check=False, capture_output=True)

    def start(self, name: str, container: Container) -> None:
        """Start a container; what it writes goes to a file."""
        bundle = self._work / f"{name}.bundle"
        bundle.mkdir(exist_ok=True)
        for mount in container.mounts:
            self._make(mount)
        (bundle / "config.json").write_text(json.dumps(self._config(name, container)))
        with (self._work / f"{name}.log").open("ab") as log:
            command = self._crun("run", "--bundle", str(bundle), f"{self._prefix}-{name}")
            self._started[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def run(self, name: str, container: Container) -> int:
        """Run a container to its end and return the exit code."""
        self.start(name, container)
        return self._started.pop(name).wait(timeout=300)

    def stop(self, name: str) -> int:
        """Ask a container to stop, and return its exit code."""
        subprocess.run(self._crun("kill", f"{self._prefix}-{name}", "TERM"), check=False, capture_output=True)
        process = self._started.pop(name)
        try:
            return process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            subprocess.run(self._crun("delete", "--force", f"{self._prefix}-{name}"), check=False)
            return process.wait(timeout=60)

    def inside(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a running container, with its user and rights."""
        process = json.loads((self._work / f"{name}.bundle" / "config.json").read_text())["process"]
        with tempfile.NamedTemporaryFile("w", dir=self._work, suffix=".json") as file:
            json.dump(process | {"args": command}, file)
            file.flush()
            whole = self._crun("exec", "--process", file.name, f"{self._prefix}-{name}")
            return subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False)

    def status_of(self, host: str, port: int, path: str) -> int:
        """Return the status of an HTTP request from outside the containers; 0 if nobody answers."""
        address = f"http://{_NETWORK}.{self._hosts.index(host) + 2}:{port}{path}"
        command = ["ip", "netns", "exec", f"{self._prefix}-hub", sys.executable, "-c", _GET, address]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)

    def log(self, name: str) -> str:
        """Return what a container wrote."""
        return (self._work / f"{name}.log").read_text(errors="replace")

    def _join(self) -> None:
        """Make a bridge with an end of its own, and a namespace with a link to it for each host."""
        hub = f"{self._prefix}-hub"
        self._ip("netns", "add", hub)
        self._ip("-n", hub, "link", "add", "br0", "type", "bridge")
        self._ip("-n", hub, "addr", "add", f"{_NETWORK}.1/24", "dev", "br0")
        self._ip("-n", hub, "link", "set", "br0", "up")
        lines = ["127.0.0.1 localhost"]
        for number, host in enumerate(self._hosts, start=2):
            own = f"{self._prefix}-{host}"
            self._ip("netns", "add", own)
            self._ip("-n", hub, "link", "add", f"to{number}", "master", "br0", "type", "veth", "peer", "eth0", "netns", own)
            self._ip("-n", hub, "link", "set", f"to{number}", "up")
            self._ip("-n", own, "addr", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self._ip("-n", own, "link", "set", device, "up")
            lines.append(f"{_NETWORK}.{number} {host}")
        (self._work / "hosts").write_text("\n".join(lines) + "\n")

    def _make(self, mount: Mount) -> None:
        """Make a named volume as Docker does: with the owner of the folder in the image, else root's."""
        if mount.source is not None and not mount.source.exists():
            mount.source.mkdir(parents=True)
            model = self._root / mount.target.lstrip("/")
            if model.is_dir():
                state = model.stat()
                os.chown(mount.source, state.st_uid, state.st_gid)
                mount.source.chmod(stat.S_IMODE(state.st_mode))

    def _config(self, name: str, container: Container) -> dict[str, Any]:
        usual = ["nosuid", "noexec", "nodev"]
        mounts: list[dict[str, Any]] = [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": usual},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*usual, "mode=1777", "size=64m"]},
            {"destination": "/etc/hosts", "type": "bind", "source": str(self._work / "hosts"), "options": ["bind", "ro"]},
        ]
        for mount in container.mounts:
            if mount.source is None:
                tmpfs = {"type": "tmpfs", "source": "tmpfs", "options": [*usual, "mode=1777"]}
                mounts.append({"destination": mount.target, **tmpfs})
            else:
                options = ["rbind", "ro" if mount.read_only else "rw"]
                mounts.append({"destination": mount.target, "type": "bind", "source": str(mount.source), "options": options})
        kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
        network = {"type": "network", "path": f"/run/netns/{self._prefix}-{container.host}"}
        return {
            "ociVersion": "1.0.0",
            "process": {
                "terminal": False,
                "user": {"uid": container.user, "gid": container.group},
                "args": container.args,
                "env": [f"{key}={value}" for key, value in container.env.items()],
                "cwd": "/site",
                "capabilities": dict.fromkeys(kinds, container.capabilities),
                "noNewPrivileges": not container.escalation,
            },
            "root": {"path": str(self._root), "readonly": container.read_only},
            "hostname": container.host,
            "mounts": mounts,
            "linux": {"namespaces": [network, *({"type": kind} for kind in ("pid", "ipc", "uts", "mount"))]},
        }

    def _crun(self, *command: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-ec", _CRUN, "crun", "--root", str(self._work / "crun"), *command]

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
