"""The peer: a bare sum in MPyC, in an environment of its own, one process per party.

Each party inputs a vector, all are added, and the sum is opened: no noise, no ledger, no journal. Party 0
prints the seconds of every repetition. `benchmarks/parties.py` runs it.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

FIELD = 2**61 - 1
PEERS = Path.home() / ".cache" / "lapwing-peers"
PACKAGES = ("mpyc==0.11", "gmpy2", "numpy", "uvloop")  # all that makes it fast


def peer_python() -> Path:
    """The interpreter of MPyC's environment, made at its first use."""
    import subprocess  # noqa: PLC0415 (only the benchmark itself makes environments)

    folder = PEERS / "mpyc"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def write_certificates(folder: Path, parties: int) -> None:
    """As MPyC wants them: an authority, and a certificate of each party under its name."""
    from cryptography import x509  # noqa: PLC0415 (MPyC's environment has no such library)
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    authority = ec.generate_private_key(ec.SECP256R1())
    where = folder / ".config"
    where.mkdir()

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def certificate(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        now = datetime.now(UTC)
        draft = (
            x509.CertificateBuilder(
                issuer_name=named("authority"),
                subject_name=named(name),
                public_key=key.public_key(),
                serial_number=x509.random_serial_number(),
                not_valid_before=now - timedelta(days=1),
                not_valid_after=now + timedelta(days=2),
            )
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        )
        return draft.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (where / "mpyc_ca.crt").write_bytes(certificate("authority", authority, is_authority=True))
    for k in range(parties):
        key = ec.generate_private_key(ec.SECP256R1())
        (where / f"party_{k}.crt").write_bytes(certificate(f"MPyC party {k}", key, is_authority=False))
        (where / f"party_{k}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


def run() -> None:
    """What each party does."""
    import numpy as np  # noqa: PLC0415
    from mpyc.runtime import mpc  # noqa: PLC0415 (reads its own options from the command line)

    size, repetitions = int(sys.argv[1]), int(sys.argv[2])

    async def sums() -> None:
        number = mpc.SecFld(FIELD)
        await mpc.start()
        for _ in range(repetitions):
            await mpc.output(number(0))  # all are there
            start = time.perf_counter()
            shared = mpc.input(number.array(np.arange(size) % 1000))
            total = shared[0]
            for other in shared[1:]:
                total = total + other
            opened = await mpc.output(total)
            taken = time.perf_counter() - start
            assert int(opened[1]) == len(shared)
            if mpc.pid == 0:
                print(f"{taken:.6f}", flush=True)
        await mpc.shutdown()

    mpc.run(sums())


if __name__ == "__main__":
    run()
