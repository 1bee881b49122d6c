#!/usr/bin/env python3
"""A registry that is reached through a proxy (HTTPS_PROXY), and one that is not (NO_PROXY); proxies that want a password, refuse, or
are not there. The password is in no log, record, message, list of processes, and not with the registry."""
import base64
import contextlib
import glob
import time

import harness
from harness import check, check_equal
from fake_registry import FakeRegistry, certificates
from registry_site import Image, Peer, Site, noise, said_by
from relays import Proxy

USER, SECRET = "surfer", "pr0xy-secret"
NAMES = "DNS:registry.test,DNS:direct.test,DNS:sub.direct.test,IP:127.0.0.1"


@contextlib.contextmanager
def names(scratch, *hosts):
    """These names are this machine."""
    path = scratch.path("hosts")
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *hosts)))
    harness.run(["mount", "--bind", path, "/etc/hosts"])
    try:
        yield
    finally:
        harness.run(["umount", "/etc/hosts"])


class Behind:
    """A registry that is called registry.test, and a node that comes to it through a proxy."""

    def __init__(self, scratch, login=None, **settings):
        self.tls = certificates(scratch, NAMES)
        self.fake = FakeRegistry(scratch, tls=self.tls, upload_location="{path}?_state={state}", **settings)
        self.port = self.fake.host.split(":")[1]
        self.proxy = Proxy(scratch, {"registry.test:443": self.fake.host}, login)

    def env(self, login=None, **more):
        return {"HTTPS_PROXY": f"http://{login + '@' if login else ''}{self.proxy.host}", **more}

    def site(self, scratch, env, remote="https://registry.test/varve", name="n1"):
        return Site(scratch, remote, config=f"[remote]\nca_file = {self.tls[0]}\n", name=name, start={"env": env})


def command_lines():
    """Those of all processes."""
    return "\n".join(harness.read_text(path) for path in glob.glob("/proc/[0-9]*/cmdline"))


def check_secrets(node, *texts):
    coded = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    for text in (*texts, *said_by(node)):
        check(SECRET not in text and coded not in text, "the proxy's password is where it may not be")


def test_through_a_proxy(scratch):
    """Pushes, pulls, tokens and deletes all go through it."""
    behind = Behind(scratch, auth="bearer", users={"agent": "x"}, realm="https://registry.test/token")
    with open(scratch.path("auth.json"), "w", encoding="utf-8") as f:
        f.write('{"auths":{"registry.test":{"username":"agent","password":"x"}}}')
    site = behind.site(scratch, behind.env(REGISTRY_AUTH_FILE=scratch.path("auth.json")))
    made, said = site.push(18 << 20)
    check_equal(said["durability"], "pushed", "durability")
    other = behind.site(scratch, behind.env(REGISTRY_AUTH_FILE=scratch.path("auth.json")), name="n2").node
    check_equal(other.ok("image", "pull", "s:1")["id"], made["digest"], "what came back")
    site.node.ok("snapshot", "rm", made["id"])
    check_equal({line for line, _ in behind.proxy.asked}, {"CONNECT registry.test:443 HTTP/1.1"}, "what the proxy was asked for")
    check_equal({r["headers"]["host"] for r in behind.fake.records()}, {"registry.test"}, "the host that the registry was asked as")
    check(any(r["path"] == "/token" for r in behind.fake.records()), "no token was asked for")
    check_equal(behind.fake.records("DELETE")[-1]["status"], 202, "delete")


def test_a_proxy_with_a_password(scratch):
    behind = Behind(scratch, login=f"{USER}:{SECRET}")
    site = behind.site(scratch, behind.env(f"{USER}:{SECRET}"))
    site.push()
    check(all("proxy-authorization" in headers for _, headers in behind.proxy.asked), "a request without the password")
    seen = [r for r in behind.fake.records() if "proxy-authorization" in r["headers"] or "authorization" in r["headers"]]
    check_equal(seen, [], "requests with the password to the registry")
    check(SECRET not in command_lines(), "the password is in the list of processes")
    behind.proxy.refusals += [503, 502]
    behind.proxy.cut()
    said = site.node.fails(3, "image", "pull", "registry.test/n:t", says=["404"])
    check_equal(behind.proxy.refusals, [], "failures of the proxy that were not tried again")
    behind.proxy.refusals += [403]
    behind.proxy.cut()
    said += site.node.fails(1, "image", "pull", "registry.test/n:t", says=["proxy", "403"])
    check_secrets(site.node, said, str(site.node.ok("job", "ls")))


def test_proxies_that_refuse(scratch):
    """The wrong password, none, or a host that it does not serve: once asked, and the proxy is named."""
    behind = Behind(scratch, login=f"{USER}:{SECRET}")
    for number, (login, refusal, says) in enumerate(((f"{USER}:wr0ng-{SECRET}", None, ["407", "password"]), (None, None, ["407", "password"]),
                                                     (f"{USER}:{SECRET}", 403, ["403", "no_proxy"]))):
        behind.proxy.refusals = [refusal] * 100 if refusal else []
        behind.proxy.asked.clear()
        node = scratch.node(f"n{number}").start(env=behind.env(login))
        start = time.monotonic()
        said = node.fails(1, "image", "pull", "registry.test/n:t", says=["proxy", "registry.test", *says])
        check(time.monotonic() - start < 10, f"{says} took {time.monotonic() - start} s")
        check(len(behind.proxy.asked) <= 2, f"{len(behind.proxy.asked)} requests to a proxy that says no")
        check_secrets(node, said)
    site = behind.site(scratch, behind.env(), name="last")
    made, line = site.push_fails(["proxy", "407", "password"])
    check_equal(site.durability(made), "local", "durability")
    check_secrets(site.node, line)
    check_equal(behind.fake.records(), [], "what arrived at the registry")


def test_proxies_that_are_not_there(scratch):
    """A port where nobody listens, a name that is none, an address that is none: the proxy is named, its password is not."""
    behind = Behind(scratch)
    behind.proxy.stop()
    jobs = []
    for number, (value, says) in enumerate(((f"http://{USER}:{SECRET}@{behind.proxy.host}", "refused"),
                                            (f"http://{USER}:{SECRET}@none.invalid:3128", "none.invalid"),
                                            (f"gopher://{USER}:{SECRET}@127.0.0.1:3128", "cannot be used"),
                                            (f"http://{USER}:{SECRET}@[::1:3128", "cannot be used"))):
        node = scratch.node(f"n{number}").start(env={"HTTPS_PROXY": value})
        jobs.append((node, node.ok("image", "pull", "registry.test/n:t", "--detach")["job"], says))
    for node, job, says in jobs:
        reply = node.call("job", "wait", job)
        check(reply.status != 0, f"{says}: it succeeded")
        for word in ("the proxy to registry registry.test", says, "proxy variables"):
            check(word in reply.err, f"'{word}' is not in: {reply.err}")
        check_secrets(node, reply.err, str(node.ok("job", "ls")))


def test_no_proxy(scratch):
    """Names, domains and this machine are reached directly; all others are not."""
    behind = Behind(scratch)
    image = Image([{"file": noise(1000)}])
    Peer(f"https://{behind.fake.host}", ca=behind.tls[0]).put("lib/x", "t", image)
    behind.proxy.places[f"direct.test:{behind.port}"] = behind.fake.host
    with names(scratch, "direct.test", "sub.direct.test"):
        for number, (no_proxy, host, proxied) in enumerate((("other.test, direct.test", "direct.test", False), (".direct.test", "sub.direct.test", False),
                                                            ("*", "direct.test", False), ("", "127.0.0.1", False), ("rect.test", "direct.test", True))):
            behind.proxy.asked.clear()
            remote = f"https://{host}:{behind.port}/varve"  # without it, this machine is spoken to by http
            node = scratch.node(f"n{number}", remote=remote, config=f"[remote]\nca_file = {behind.tls[0]}\n").start(env=behind.env(NO_PROXY=no_proxy))
            node.ok("image", "pull", f"{host}:{behind.port}/lib/x:t")
            check_equal(bool(behind.proxy.asked), proxied, f"whether the proxy was asked for {host} with NO_PROXY={no_proxy}")


if __name__ == "__main__":
    harness.main(globals())
