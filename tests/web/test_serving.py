"""Running: only TLS or this machine, an orderly end, and what becomes of the stopping rule."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lapwing.errors import BadParameter
from lapwing.survey.web_app import create_app
from lapwing.web.serving import require_encrypted, serve
from support import postgres
from support.collecting import SIZE, Shelf, credential, invited, service_of
from support.survey_server import PUBLIC, Process

GOOD = b"\x01\x00\x01"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate, key


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path, str(tmp_path / "survey.reports"))
    yield started
    if started.process.poll() is None:
        started.stop()


class TestTls:
    def test_a_survey_runs_over_it(self, process: Process, tls: tuple[Path, Path]) -> None:
        certificate, key = tls
        process.more = {"certificate": str(certificate), "tls_key": str(key)}
        process.trusted = certificate
        process.start()
        assert process.address.startswith("https://127.0.0.1:")
        shelf = Shelf(process.where)
        invitation, blinding = invited(shelf.open())
        signed = process.sign(invitation, blinding.blinded)
        signature = blinding.finish(bytes.fromhex(signed.json["signature"]))
        sent = process.report(blinding.prepared, signature, GOOD)
        assert (sent.status, sent.json) == (200, {"accepted": True})
        assert sent.headers["strict-transport-security"] == "max-age=31536000"
        assert shelf.open().state().reports == 1
        shelf.close()

    def test_nothing_plain_or_old_is_answered(self, process: Process, tls: tuple[Path, Path]) -> None:
        certificate, key = tls
        process.more = {"certificate": str(certificate), "tls_key": str(key)}
        process.start()
        with socket.create_connection(process.host_and_port, timeout=60) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"HTTP/1.1" not in plain.recv(4096)
        with pytest.raises(ssl.SSLCertVerificationError):
            process.ask("GET", "/")  # nobody vouches for this certificate
        assert process.log.read_text() == ""

    def test_no_connection_resumes_another(self, process: Process, tls: tuple[Path, Path]) -> None:
        """A report over a session that the credential's connection began would show whose it is."""
        certificate, key = tls
        process.more = {"certificate": str(certificate), "tls_key": str(key)}
        process.start()
        context = ssl.create_default_context(cafile=certificate)

        def ask(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
            plain = socket.create_connection(process.host_and_port, timeout=60)
            with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as over:
                over.sendall(b"GET /survey.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                reply = b""
                while part := over.recv(1 << 16):  # tickets would come with it
                    reply += part
                assert reply.startswith(b"HTTP/1.1 200")
                return over.session, over.session_reused

        session, _ = ask(None)
        assert session is None or not session.has_ticket
        for _ in range(2):
            session, reused = ask(session)
            assert reused is False
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # resumes by session ids, too
        with pytest.raises(ssl.SSLError):
            ask(None)
        context.maximum_version = ssl.TLSVersion.TLSv1_3
        assert ask(None)[1] is False

    def test_half_a_pair_or_a_bad_one_is_refused(self, tmp_path: Path, tls: tuple[Path, Path]) -> None:
        app = create_app(service_of(Shelf.of("sqlite", tmp_path).open()), PUBLIC)
        certificate, key = tls

        def run(certificate: Path | None, key: Path | None) -> None:
            serve(app, host="127.0.0.1", port=0, certificate=certificate, key=key, ready=print)

        with pytest.raises(BadParameter, match="go together"):
            run(certificate, None)
        with pytest.raises(BadParameter, match="cannot be used"):
            run(key, certificate)
        with pytest.raises(BadParameter, match="cannot be used"):
            run(tmp_path / "none", tmp_path / "none")


class TestTheAddress:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "survey.example.org", ""])
    def test_plain_http_is_for_this_machine_only(self, host: str) -> None:
        with pytest.raises(BadParameter, match="--tls-cert"):
            require_encrypted(host, has_tls=False, behind_tls_proxy=False)
        require_encrypted(host, has_tls=True, behind_tls_proxy=False)
        require_encrypted(host, has_tls=False, behind_tls_proxy=True)

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "localhost"])
    def test_this_machine_needs_no_tls(self, host: str) -> None:
        require_encrypted(host, has_tls=False, behind_tls_proxy=False)

    def test_a_port_that_is_taken_is_told(self, process: Process, tmp_path: Path) -> None:
        process.start()
        (tmp_path / "other").mkdir()
        app = create_app(service_of(Shelf.of("sqlite", tmp_path / "other").open()), PUBLIC)
        _, port = process.host_and_port
        with pytest.raises(BadParameter, match="cannot be served: Address already in use"):
            serve(app, host="127.0.0.1", port=port, ready=print)

    @pytest.mark.parametrize("host", ["\ud800", "a\0b", "ä" * 70, "no such host", "8.8.8.8"])
    def test_what_is_no_address_of_ours_is_told(self, tmp_path: Path, host: str) -> None:
        app = create_app(service_of(Shelf.of("sqlite", tmp_path).open()), PUBLIC)
        with pytest.raises(BadParameter, match="cannot be served"):
            serve(app, host=host, port=0, behind_tls_proxy=True, ready=print)


class TestTheEnd:
    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
    def test_is_orderly(self, process: Process, how: signal.Signals) -> None:
        process.start()
        for _ in range(10):
            assert process.report(*credential(), GOOD).status == 200
        process.process.send_signal(how)
        process._wait()
        assert process.log.read_text() == ""
        shelf = Shelf(process.where)
        assert shelf.open().state().reports == 10
        shelf.close()

    def test_comes_after_so_many_reports(self, process: Process) -> None:
        process.more = {"stop_after": 2}
        process.start()
        shelf = Shelf(process.where)
        invitation, blinding = invited(shelf.open())
        first, second, third = (credential() for _ in range(3))
        assert process.report(*first, GOOD).status == 200
        assert process.report(*second, GOOD).status == 200
        reply = process.report(*third, GOOD)
        assert (reply.status, reply.json) == (410, {"error": "the survey is closed"})
        assert process.sign(invitation, blinding.blinded).status == 410
        assert process.report(*first, GOOD).status == 200  # its reply may have been lost
        assert process.report(*first, bytes(SIZE)).status == 409
        assert shelf.open().state().reports == 2
        shelf.close()

    def test_comes_with_the_last_day(self, process: Process) -> None:
        process.more = {"until": "2020-02-29"}
        process.start()
        assert process.report(*credential(), GOOD).status == 410

    def test_may_be_the_owners_decision_while_the_server_runs(self, process: Process) -> None:
        process.start()
        own = credential()
        process.report(*own, GOOD)
        shelf = Shelf(process.where)
        shelf.open().close_survey()
        assert process.report(*credential(), GOOD).status == 410
        assert process.report(*own, GOOD).status == 200
        shelf.close()


class TestADatabaseThatIsAway:
    def test_is_told_as_later_and_nothing_is_lost(self, tmp_path: Path) -> None:
        database = postgres.Server().start()
        url = postgres.fresh_url(database.url)
        process = Process(tmp_path, url).start()
        try:
            first, second = credential(), credential()
            assert process.report(*first, GOOD).status == 200
            database.stop("immediate")
            reply = process.report(*second, GOOD)
            later = {"error": "this cannot be stored now; send it again later"}
            assert (reply.status, reply.json) == (503, later)
            assert reply.headers["retry-after"] == "60"
            database.start()
            for own in (first, second, first, second):
                assert process.report(*own, GOOD).status == 200
            shelf = Shelf(url)
            assert shelf.open().state().reports == 2
            shelf.close()
            assert process.log.read_text() == ""
        finally:
            process.stop()
            database.remove()


def test_the_command_refuses_plain_http_elsewhere_before_anything_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.survey_cli", "serve", "survey.toml", "--host", "0.0.0.0"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 2
    assert "--behind-tls-proxy" in done.stderr
    assert list(tmp_path.iterdir()) == []
