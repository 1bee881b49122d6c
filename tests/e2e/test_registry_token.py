#!/usr/bin/env python3
"""docker-registry with `auth: token`: signed tokens from a host of its own (tests/support/token_server.py), which skopeo understands
the same way."""
import base64
import json
import os

import harness
from harness import Registry, check, check_equal, run
from registry_site import Image, Site, digest, noise, said_by
from token_server import TokenServer

USER, SECRET, IDENTITY = "agent", "s3cret:with:colons", "1dentity-token"


class TokenRegistry(Registry):
    """docker-registry that believes a TokenServer."""

    def __init__(self, scratch, tokens):
        super().__init__(scratch)
        self.tokens = tokens

    def config(self):
        return super().config() + self.tokens.config()


def start(scratch):
    """(token host, registry)"""
    tokens = TokenServer(scratch, {USER: SECRET}, {IDENTITY: USER})
    registry = TokenRegistry(scratch, tokens)
    scratch.owned.append(registry)
    return tokens, registry.start()


def write(path, entry, host):
    """The file with credentials, put in place at once."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump({"auths": {host: entry}}, f)
    os.chmod(path + ".new", 0o600)
    os.replace(path + ".new", path)


def password(secret=SECRET):
    return {"auth": base64.b64encode(f"{USER}:{secret}".encode()).decode()}


def site_of(scratch, registry, entry):
    path = scratch.path("auth.json")
    write(path, entry, registry.host)
    return Site(scratch, registry.url, start={"env": {"REGISTRY_AUTH_FILE": path}})


def check_secrets(site, *texts):
    """No secret is in the daemon's log or catalog, nor in what it said."""
    coded = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    for text in (*texts, *said_by(site.node)):
        check(not any(word in text for word in (SECRET, coded, IDENTITY, "eyJ")), "a secret is where none may be")


def skopeo(registry, command, *args):
    return run(["skopeo", command, "--tls-verify=false", "--creds", f"{USER}:{SECRET}", *args])


def test_push_and_pull(scratch):
    """What is pushed with tokens is read by skopeo, and by another node."""
    tokens, registry = start(scratch)
    site = site_of(scratch, registry, password())
    site.push(100000)
    site.push(100000)
    check({a[1] for a in tokens.asked} == {USER}, f"who asked for tokens: {tokens.asked}")
    scopes = [scope for a in tokens.asked for scope in a[2]]
    check("repository:varve/images/s:pull,push" in scopes, f"scopes: {scopes}")
    check(len(tokens.asked) <= 4, f"tokens of two pushes: {tokens.asked}")
    skopeo(registry, "inspect", f"docker://{registry.host}/varve/images/s:1")
    other = scratch.node("n2", remote=registry.url).start(env={"REGISTRY_AUTH_FILE": scratch.path("auth.json")})
    other.ok("image", "pull", "s:2")
    check_secrets(site)


def test_identity_tokens(scratch):
    tokens, registry = start(scratch)
    site = site_of(scratch, registry, {"identitytoken": IDENTITY})
    site.push()
    check_equal({(a[0], a[1]) for a in tokens.asked}, {("POST", USER)}, "how tokens were asked for")
    check_secrets(site)


def test_who_may_not(scratch):
    """Wrong passwords, missing rights and missing log-ins are told apart, and mended without a restart."""
    tokens, registry = start(scratch)
    site = site_of(scratch, registry, password("wr0ng"))
    made = site.snapshot()
    line = site.node.fails(1, "snapshot", "push", made["id"], says=["401", "who are you", "docker login", registry.host])
    check("wr0ng" not in line, line)
    write(scratch.path("auth.json"), {}, registry.host)
    line += site.node.fails(1, "snapshot", "push", made["id"], says=["401", "docker login", registry.host])
    write(scratch.path("auth.json"), password(), registry.host)
    closed = site.node.ok("snapshot", "create", "--run", "r", "--name", "closed:1")
    line += site.node.fails(1, "snapshot", "push", closed["id"], says=["docker login"])
    site.node.ok("snapshot", "push", made["id"])
    check(len(tokens.asked) <= 20, f"{len(tokens.asked)} tokens were asked for")
    check_secrets(site, line)


def test_anonymous_pull(scratch):
    """What everybody may pull needs a token, but no log-in."""
    tokens, registry = start(scratch)
    image = Image([{"file": noise(1000)}])
    layout = scratch.path("layout")
    os.makedirs(f"{layout}/blobs/sha256")
    for data in [*image.blobs, image.manifest]:
        with open(f"{layout}/blobs/sha256/{digest(data)[7:]}", "wb") as f:
            f.write(data)
    with open(f"{layout}/oci-layout", "w", encoding="utf-8") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    with open(f"{layout}/index.json", "w", encoding="utf-8") as f:
        json.dump({"schemaVersion": 2, "manifests": [image.descriptor]}, f)
    run(["skopeo", "copy", "--dest-tls-verify=false", "--dest-creds", f"{USER}:{SECRET}", f"oci:{layout}",
         f"docker://{registry.host}/public/x:t"])
    tokens.asked.clear()
    node = scratch.node("n1").start(env={"REGISTRY_AUTH_FILE": scratch.path("none.json")})
    node.ok("image", "pull", f"{registry.host}/public/x:t")
    check_equal({(a[1], *a[2]) for a in tokens.asked}, {(None, "repository:public/x:pull")}, "tokens")
    node.fails(1, "image", "pull", f"{registry.host}/private/x:t", says=["401", "docker login"])


if __name__ == "__main__":
    harness.main(globals())
