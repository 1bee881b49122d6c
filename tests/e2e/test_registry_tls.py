#!/usr/bin/env python3
"""Registries whose certificate is not to be trusted, that speak no TLS of these days, and those behind a server that speaks HTTP/2
and ends connections as it likes. Each failure says what is wrong and what to do, and is tried once."""
import re
import shutil
import time

import harness
from harness import check, check_equal, run
from fake_registry import FakeRegistry, certificates
from front_server import FrontServer
from registry_site import Image, Peer, Site, noise
from relays import Relay

MIB = 1 << 20


def self_signed(scratch):
    """(no authority, certificate, key)"""
    cert, key = scratch.path("self.pem"), scratch.path("self.key")
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=self",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert])
    return None, cert, key


def relayed(scratch, tls, **options):
    """A relay in front of a registry with this certificate."""
    fake = FakeRegistry(scratch, tls=(None, *tls[1:]), **options)
    fake.faults = str  # it says something of handshakes that fail
    return Relay(scratch, fake.host)


def trusting(ca):
    return f"[remote]\nca_file = {ca}\n" if ca else ""


def refused(scratch, name, tls, ca, says, **options):
    """A pull fails with these words, and makes one connection."""
    relay = relayed(scratch, tls, **options)
    node = scratch.node(name, remote=f"https://{relay.host}/varve", config=trusting(ca)).start()
    start = time.monotonic()
    node.fails(1, "image", "pull", f"{relay.host}/n:t", says=[relay.host, *says])
    check(time.monotonic() - start < 10, f"{name}: it took {time.monotonic() - start} s")
    check_equal(relay.taken, 1, f"connections to a registry that is {name}")


def test_certificates_that_are_bad(scratch):
    ca = certificates(scratch)[0]
    refused(scratch, "expired", certificates(scratch, "IP:127.0.0.1", -1, "expired"), ca, ["certificate has expired", "renew", "clock"])
    refused(scratch, "elsewhere", certificates(scratch, "DNS:wrong.example", 2, "elsewhere"), ca, ["127.0.0.1", "certificate", "name that"])
    refused(scratch, "alone", self_signed(scratch), None, ["self-signed certificate", "ca_file"])
    refused(scratch, "strange", certificates(scratch), None, ["certificate", "ca_file"])


def test_pushes_to_registries_that_are_not_trusted(scratch):
    """Nothing is sent, nothing is claimed."""
    tls = certificates(scratch, "IP:127.0.0.1", -1)
    relay = relayed(scratch, tls)
    site = Site(scratch, f"https://{relay.host}/varve", config=trusting(tls[0]))
    made, _ = site.push_fails([relay.host, "certificate has expired"])
    check_equal(relay.taken, 1, "connections")
    check_equal(site.durability(made), "local", "durability")


def test_a_self_signed_certificate_that_is_named(scratch):
    """Named as ca_file it is trusted."""
    _, cert, key = self_signed(scratch)
    fake = FakeRegistry(scratch, tls=(cert, cert, key))
    site = Site(scratch, fake.url, config=trusting(cert))
    site.push()


def test_a_file_of_authorities_that_is_broken(scratch):
    """Said when varved starts, which it does; and to who needs it, as a failure. Mended, it is used."""
    tls = certificates(scratch)
    fake = FakeRegistry(scratch, tls=tls)
    broken = scratch.path("broken.pem")
    with open(broken, "w", encoding="ascii") as f:
        f.write("garbage")
    site = Site(scratch, fake.url, config=trusting(broken))
    check("registry-trust" in site.node.log_text() and broken in site.node.log_text(), site.node.log_text())
    site.node.fails(1, "image", "pull", f"{fake.host}/lib/x:t", says=["ca_file"])
    shutil.copy(tls[0], broken)
    site.push()


def test_old_tls(scratch):
    tls = certificates(scratch)
    refused(scratch, "old", tls, tls[0], ["TLS 1.2"], tls10=True)


class Front:
    """docker-registry behind nginx behind a relay."""

    def __init__(self, scratch, cuts=(), **options):
        self.tls = certificates(scratch)
        self.registry = scratch.registry()
        self.nginx = FrontServer(scratch, self.registry.host, self.tls, **options)
        self.relay = Relay(scratch, self.nginx.socket, cuts)
        self.host = self.relay.host
        self.config = trusting(self.tls[0])

    @property
    def url(self):
        return f"https://{self.host}/varve"

    def questions(self):
        """What went by HTTP/2; not all, as a question may also find a connection that blobs are done with. How far an upload has
        come (/blobs/uploads/) is a question, too."""
        two = self.nginx.requests("HTTP/2.0")
        check({"GET", "HEAD"} <= {r[2] for r in two}, f"by HTTP/2: {two}")
        check_equal([r for r in two if r[2] == "PATCH" or (r[2] == "GET" and "/blobs/sha256:" in r[3])], [], "blobs by HTTP/2")
        return two


def push_and_pull(scratch, front, size=2 * MIB):
    """What is pushed is there, and comes back on another node, as do many small layers."""
    site = Site(scratch, front.url, config=front.config)
    made, said = site.push(size)
    check_equal(said["durability"], "pushed", "durability")
    image = Image([{f"file{i}": noise(1000, i)} for i in range(12)] + [{"large": noise(size, 9)}])
    peer = Peer(front.registry.base)
    peer.put("lib/many", "t", image)
    peer.check_whole("varve/images/s", made["digest"])
    other = scratch.node("n2", remote=front.url, config=front.config).start()
    check_equal(other.ok("image", "pull", "s:1")["id"], made["digest"], "what came back")
    other.ok("image", "pull", f"{front.host}/lib/many:t")
    return site


def test_http2(scratch):
    front = Front(scratch)
    site = push_and_pull(scratch, front, 20 * MIB)
    questions = front.questions()
    check(len({r[1] for r in questions}) <= 4, f"connections for {len(questions)} questions: {sorted({r[1] for r in questions})}")
    site.node.ok("snapshot", "rm", site.node.ok("snapshot", "ls")["snapshots"][0]["id"])
    check_equal([r[0] for r in front.nginx.requests("HTTP/2.0") + front.nginx.requests("HTTP/1.1") if r[2] == "DELETE"], ["202"], "deletes")


def test_goaway(scratch):
    """After a few requests the server ends a connection, in the middle of others on it."""
    front = Front(scratch, requests=3)
    push_and_pull(scratch, front)
    questions = front.questions()
    uses = [sum(1 for r in questions if r[1] == connection) for connection in {r[1] for r in questions}]
    check(len(uses) >= 5 and max(uses) <= 3, f"requests on each connection: {uses}")


def test_connections_that_are_cut(scratch):
    """All connections end at once, at these numbers of bytes, whatever is under way."""
    cuts = [4000, 9000, 14000, 20000, 500000, MIB]
    front = Front(scratch, cuts)
    push_and_pull(scratch, front)
    check(len(front.relay.cuts) <= 1, f"cuts that were not reached: {front.relay.cuts} of {front.relay.answered} bytes")
    front.questions()


def test_a_limit_of_the_front_server(scratch):
    """nginx refuses bodies that are too large by a web page; pieces of them get through."""
    front = Front(scratch, body_max="3m")
    site = Site(scratch, front.url, config=front.config)
    made, _ = site.push(17 * MIB)
    Peer(front.registry.base).check_whole("varve/images/s", made["digest"])
    check("413" in {r[0] for r in front.nginx.requests("HTTP/1.1")}, "nothing was refused")
    check(not re.search("error=.*413", site.node.log_text()), "a refusal that was overcome is an error in the log")


if __name__ == "__main__":
    harness.main(globals())
