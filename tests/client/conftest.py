"""A server for clients, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import lapwing
from lapwing.client.remote_dataset import RemoteDataset
from lapwing.server.people.person import Role
from support.door_process import DoorProcess, new_token, running
from support.served import write_data


@dataclass(frozen=True)
class Place:
    """A running server of one data set, and the token of an analyst."""

    folder: Path
    door: DoorProcess
    token: str

    def connect(self, **more: object) -> RemoteDataset:
        """Connect as the analyst."""
        return lapwing.connect(f"{self.door.address}/visits", token=self.token, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPWING_STATE", str(folder / "state"))
        write_data(folder)
        token = new_token(folder, "ann", Role.ANALYST)
        with running(folder) as door:
            yield Place(folder, door, token)


@pytest.fixture
def visits(place: Place) -> Iterator[RemoteDataset]:
    with place.connect() as opened:
        yield opened


@pytest.fixture
def tls_files(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of localhost that nobody knows, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
