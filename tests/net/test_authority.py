"""A certificate authority beside the pins: both must agree."""

from __future__ import annotations

import asyncio
import datetime
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from blindbayes.agent.config import SiteConfig, Tls
from blindbayes.agent.serve import make_courier
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import ConfigError
from blindbayes.net.authority import Authority, request
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity

DAY = datetime.timedelta(days=1)


class Notary:
    """A small certificate authority."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "consortium")])
        root = self._builder(self._name, self._key.public_key(), DAY)
        root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.roots = root.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(self, subject: x509.Name, key: object, lasts: datetime.timedelta) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)  # type: ignore[arg-type]
        return builder.serial_number(x509.random_serial_number()).not_valid_before(now - 9 * DAY).not_valid_after(now + lasts)

    def sign(self, pem: bytes, lasts: datetime.timedelta = DAY) -> bytes:
        asked = x509.load_pem_x509_csr(pem)
        builder = self._builder(asked.subject, asked.public_key(), lasts)
        for extension in asked.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Inbox:
    def __init__(self) -> None:
        self.up, self.frames = asyncio.Event(), asyncio.Queue[tuple[str, bytes]]()

    def frame_arrived(self, sender: str, frame: bytes) -> None:
        self.frames.put_nowait((sender, frame))

    def peer_up(self, peer: str) -> None:
        self.up.set()

    def peer_down(self, peer: str) -> None: ...


async def connects(
    north: Identity,
    south: Identity,
    norths: Authority | None,
    souths: Authority | None,
    *,
    norths_pin: Identity | None = None,
    souths_pin: Identity | None = None,
    seconds: float = 60,
) -> bool:
    """Whether a frame gets from north, which dials, to south, which listens. Each has pinned the other, or somebody else."""

    inbox, other = Inbox(), Inbox()
    port = GrpcCourier(south, {"north": (souths_pin or north).card}, listen="127.0.0.1:0", authority=souths)
    await port.start(inbox)
    card = (norths_pin or south).with_address(f"127.0.0.1:{port.port}").card
    dials = GrpcCourier(north, {"south": card}, authority=norths)
    await dials.start(other)
    try:
        async with asyncio.timeout(seconds):
            await other.up.wait()
            await dials.send("south", b"hello")
            return await inbox.frames.get() == ("north", b"hello")
    except TimeoutError:
        return False
    finally:
        await dials.stop()
        await port.stop()


def test_a_connection_needs_the_authority_and_the_pin() -> None:
    notary, stranger = Notary(), Notary()
    north, south, other = Identity.generate("north"), Identity.generate("south"), Identity.generate("other")
    norths, souths, others = (Authority(notary.roots, notary.sign(request(each))) for each in (north, south, other))
    strange, late = (
        Authority(notary.roots, each) for each in (stranger.sign(request(north)), notary.sign(request(north), lasts=-DAY))
    )

    async def test() -> None:
        assert await connects(north, south, norths, souths)
        briefly = partial(connects, seconds=1.5)
        refused = {
            "certified, but another key than the pinned one": briefly(north, south, norths, souths, souths_pin=other),
            "the port is certified under another name": briefly(north, other, norths, others, norths_pin=south),
            "pinned, but not certified": briefly(north, south, None, souths),
            "the other way around": briefly(north, south, norths, None),
            "certified by somebody else": briefly(north, south, strange, souths),
            "not any more": briefly(north, south, late, souths),
        }
        came = await asyncio.gather(*refused.values())
        assert dict(zip(refused, came, strict=True)) == dict.fromkeys(refused, False)

    asyncio.run(test())


def test_a_certificate_of_another_key_or_name_is_refused_at_the_start(tmp_path: Path) -> None:
    notary = Notary()
    home, identity = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(tls=Tls("ca.pem", "own.pem")))
    with pytest.raises(ConfigError, match="cannot be read"):
        make_courier(home, identity)
    (home.folder / "ca.pem").write_bytes(notary.roots)
    (home.folder / "own.pem").write_bytes(b"no certificate")
    with pytest.raises(ConfigError, match="PEM"):
        make_courier(home, identity)
    (home.folder / "own.pem").write_bytes(notary.sign(request(Identity.generate("north"))))
    with pytest.raises(ConfigError, match="not of this site's key"):
        make_courier(home, identity)
    (home.folder / "own.pem").write_bytes(notary.sign(request(identity)))
    assert make_courier(SiteFolder.open(home.folder), identity) is not None
