#!/usr/bin/env python3
"""Who may do what at a registry: challenges of all shapes, tokens that end in the middle of a push, where credentials come
from, TLS. What was sent to whom is read from the fake registry's records."""
import base64
import json
import os

import harness
from harness import check, check_equal
from fake_registry import FakeRegistry, certificates
from registry_site import Image, Peer, Site, noise, said_by

USER, SECRET = "agent", "s3cret:with:colons"


def login(host, user=USER, secret=SECRET):
    return {"auths": {host: {"auth": base64.b64encode(f"{user}:{secret}".encode()).decode()}}}


def write(path, content):
    """A file of this text or JSON, put in place at once; an old one's time differs."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))
    os.replace(path + ".new", path)


def private_site(scratch, fake, config=None, **options):
    """A site whose node has an auth_file."""
    write(scratch.path("auth.json"), login(fake.host) if config is None else config)
    remote = f"[remote]\nauth_file = {scratch.path('auth.json')}\n"
    remote += f"ca_file = {fake.ca}\n" if fake.ca else ""
    return Site(scratch, fake.url, config=remote, **options)


def who(record):
    """The user of a request for a token."""
    coded = record["headers"].get("authorization", "")
    return base64.b64decode(coded[6:]).decode().split(":")[0] if coded.startswith("Basic ") else None


def ask(node, fake):
    """One request that needs a right to pull; what it asks for is not there."""
    node.fails(3, "image", "pull", f"{fake.host}/none:1", says=["404"])


def refuse(node, fake, says, status=1):
    return node.fails(status, "image", "pull", f"{fake.host}/none:1", says=says)


def private_node(scratch, fake, config=None):
    write(scratch.path("auth.json"), login(fake.host) if config is None else config)
    return scratch.node("n1", remote=fake.url, config=f"[remote]\nauth_file = {scratch.path('auth.json')}\n").start()


def check_secrets(node, fake, *texts):
    """The secret is in no log, record or message, and in no request to another host."""
    coded = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    for text in (*texts, *said_by(node)):
        check(SECRET not in text and coded not in text and "fake-token-" not in text, "a secret is where none may be")
    strange = [r for r in fake.records() if r["host"] == "other" and ("authorization" in r["headers"] or "cookie" in r["headers"])]
    check_equal(strange, [], "requests with credentials to the other host")


def test_challenges(scratch):
    fake = FakeRegistry(scratch, auth="bearer", users={USER: SECRET}, anonymous=False)
    node = private_node(scratch, fake)
    full = 'Bearer realm="{realm}",service="fake",scope="{scope}"'
    for challenge in (None, ['Basic realm="x"', full], f'Basic realm="x", {full}', f'{full}, Basic realm="x"',
                      'bearer REALM="{realm}",Service="fake",scope="{scope}"', 'Bearer realm="{realm}"',
                      'Bearer realm="{realm}",scope="{scope}"', 'Bearer realm="{realm}",service="fa, \\"ke\\"=",scope="{scope}"',
                      'Bearer realm = "{realm}" , service = fake , scope = "{scope}"', ["Negotiate", "Digest realm=x", full],
                      'Bearer scope="{scope}",realm="{realm}",error="invalid_token",error_description="a, b"'):
        fake.config(auth="bearer", users={USER: SECRET}, anonymous=False, **({} if challenge is None else {"challenge": challenge}))
        fake.forget("tokens")
        fake.reset()
        ask(node, fake)
        tokens = [r for r in fake.records() if r["path"] == "/token"]
        check(tokens and all(who(r) == USER for r in tokens), f"who asked for tokens after {challenge}: {tokens}")
        check_equal({r["query"].get("scope") for r in tokens}, {"repository:none:pull"}, f"scopes after {challenge}")
        if challenge and "fa, " in challenge:
            check_equal(tokens[-1]["query"]["service"], 'fa, "ke"=', "service")
    check_secrets(node, fake)


def test_scopes_of_pushes(scratch):
    settings = {"auth": "bearer", "users": {USER: SECRET}, "anonymous": False}
    fake = FakeRegistry(scratch, **settings)
    site = private_site(scratch, fake)
    for challenge in ('Bearer realm="{realm}",service="fake",scope="{scope}"', 'Bearer realm="{realm}"'):
        fake.config(challenge=challenge, **settings)
        fake.forget("tokens")
        fake.reset()
        site.push()
        scopes = " ".join(r["query"].get("scope", "") for r in fake.records(part="/token"))
        check("repository:varve/images/s:pull,push" in scopes, f"scopes after {challenge}: {scopes}")
    check_secrets(site.node, fake)


def test_challenges_that_are_none(scratch):
    fake = FakeRegistry(scratch, auth="bearer", users={USER: SECRET}, challenge="")
    node = private_node(scratch, fake)
    for challenge in ("", "Negotiate", "Bearer", 'Bearer realm="ftp://x/"', 'Bearer realm="', "=", 'Bearer realm=""'):
        fake.config(auth="bearer", users={USER: SECRET}, challenge=challenge)
        fake.reset()
        line = refuse(node, fake, ["401"])
        check(len(fake.records()) <= 6, f"{len(fake.records())} requests after {challenge!r}")
        check_secrets(node, fake, line)


def test_basic(scratch):
    fake = FakeRegistry(scratch, auth="basic", users={USER: SECRET})
    site = private_site(scratch, fake)
    site.push()
    peer = Peer(f"http://{fake.host}", login=f"{USER}:{SECRET}")
    peer.check_whole("varve/images/s", "1")
    refused = [r for r in fake.records() if r["status"] == 401]
    check(len(refused) <= 2, f"challenges of one push: {len(refused)}")
    write(scratch.path("auth.json"), login(fake.host, secret="wrong"))
    fake.reset()
    made, line = site.push_fails(["401", fake.host])
    check("wrong" not in line, line)
    check(len(fake.records()) <= 6, f"requests with a wrong password: {len(fake.records())}")
    write(scratch.path("auth.json"), {})
    site.node.fails(1, "snapshot", "push", made["id"], says=["401"])
    write(scratch.path("auth.json"), login(fake.host))
    site.node.ok("snapshot", "push", made["id"])
    check_secrets(site.node, fake, line)


def forgetting(*places):
    """Rules that let all tokens end when one of these requests arrives: (method, glob, which)."""
    return [{"method": method, "path": path, "nth": nth, "forget": "tokens"} for method, path, nth in places]


def test_tokens_that_end_in_the_middle(scratch):
    settings = {"auth": "bearer", "users": {USER: SECRET}, "anonymous": False}
    fake = FakeRegistry(scratch, **settings)
    site = private_site(scratch, fake)
    fake.config(forgetting(("PATCH", "*", 2), ("PUT", "*/uploads/*", 1), ("POST", "*/uploads/*", 2), ("PUT", "*/manifests/*", 1)), **settings)
    made, _ = site.push(size=24 << 20)
    Peer(f"http://{fake.host}", login=f"{USER}:{SECRET}")
    sent = sum(r["bytes"] for r in fake.records("PUT,PATCH"))
    check(sent <= made["bytes_total"] + (17 << 20), f"{sent} bytes were sent for {made['bytes_total']}")
    begun = fake.records("POST", "/uploads/")
    done = [r for r in begun if r["status"] == 202]
    check_equal(len(done), 3, "sessions of three blobs")
    check(len([r for r in fake.records() if r["status"] == 401]) >= 4, "tokens did not end")


def test_tokens_that_are_never_good(scratch):
    fake = FakeRegistry(scratch, [{"path": "/v2/*", "forget": "tokens"}], auth="bearer", users={USER: SECRET})
    node = private_node(scratch, fake)
    line = refuse(node, fake, ["401"])
    check(len(fake.records(part="/token")) <= 6, f"{len(fake.records(part='/token'))} tokens were asked for")
    check_secrets(node, fake, line)


def test_token_documents(scratch):
    """`access_token` in place of `token`, no expires_in; what is no token document is a failure that says so."""
    settings = {"auth": "bearer", "users": {USER: SECRET}}
    fake = FakeRegistry(scratch, token_field="access_token", expires_in=None, **settings)
    node = private_node(scratch, fake)
    ask(node, fake)
    for rule in ({"body": "<html>login</html>"}, {"body": {"token": 5}}, {"body": {}}, {"body": {"token": "a\nb"}}, {"body": "{" * 4000},
                 {"body": "x", "repeat": 10 << 20}):
        fake.config([{"path": "/token*", "status": 200, **rule}], **settings)
        fake.forget("tokens")
        line = refuse(node, fake, ["token"])
        check(len(line) < 1500, f"{len(line)} bytes of error")


def helper(directory, name, answers):
    """A credential helper that knows these hosts, and writes down what it was asked."""
    path = os.path.join(directory, f"docker-credential-{name}")
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/usr/bin/python3\nimport json, sys\nhost = sys.stdin.read().strip()\n"
                f"open({path + '.asked'!r}, 'a').write(' '.join(sys.argv[1:]) + ' ' + host + '\\n')\n"
                f"found = {answers!r}.get(host)\n"
                "print(json.dumps({'ServerURL': host, 'Username': found[0], 'Secret': found[1]}) if found else\n"
                "      'credentials not found in native keychain')\nsys.exit(not found)\n")
    os.chmod(path, 0o755)


def test_where_credentials_come_from(scratch):
    users = {"inline": "i", "stored": "s", "helped": "h"}
    fake = FakeRegistry(scratch, auth="bearer", users=users, refresh_tokens=["identity"], anonymous=False)
    programs = scratch.path("programs")
    os.makedirs(programs)
    # Looked for in fixed places; this mount namespace is the test's own.
    harness.run(["mount", "--bind", programs, "/usr/local/sbin"])
    helper(programs, "store", {fake.host: ("stored", "s")})
    helper(programs, "special", {fake.host: ("helped", "h"), "other:1": ("x", "x")})
    helper(programs, "token", {fake.host: ("<token>", "identity")})
    helper(programs, "empty", {})
    node = private_node(scratch, fake, {})
    inline = login(fake.host, "inline", "i")
    name = fake.host
    for config, user in ((inline, "inline"), ({**inline, "credsStore": "store"}, "stored"),
                         ({"auths": {name: {}}, "credsStore": "store"}, "stored"),
                         ({**inline, "credsStore": "store", "credHelpers": {name: "special"}}, "helped"),
                         ({**inline, "credHelpers": {"other:1": "special"}}, "inline"),
                         ({**inline, "credsStore": "empty"}, "inline"),
                         ({"auths": {f"http://{name}/v1/": {"username": "inline", "password": "i"}}}, "inline"),
                         ({"auths": {name: {"identitytoken": "identity"}}}, None), ({"credHelpers": {name: "token"}}, None)):
        write(scratch.path("auth.json"), config)
        fake.forget("tokens")
        fake.reset()
        ask(node, fake)
        tokens = [r for r in fake.records(part="/token") if r["status"] == 200]
        check(tokens and all(who(r) == user for r in tokens), f"{config}: {[(r['method'], who(r)) for r in tokens]}")
        if user is None:
            check_equal(tokens[0]["method"], "POST", "the request for an identity token")
            check("refresh_token=identity" in tokens[0]["body"], tokens[0]["body"])
    check_equal(set(harness.read_text(f"{programs}/docker-credential-store.asked").split("\n")), {f"get {name}", ""}, "what the store was asked")
    harness.run(["umount", "/usr/local/sbin"])


def test_configs_that_are_broken(scratch):
    fake = FakeRegistry(scratch, auth="bearer", users={USER: SECRET}, anonymous=False)
    node = private_node(scratch, fake, {})
    path = scratch.path("auth.json")
    coded = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    for config in ('{"auths":', f'{{"auths":{{"{fake.host}":{{"auth":5}}}}}}', "[]", f'{{"auths":{{"{fake.host}":{{"auth":"?{coded}"}}}}}}',
                   f'{{"credHelpers":{{"{fake.host}":"missing"}}}}', f'{{"credHelpers":{{"{fake.host}":"../evil"}}}}'):
        write(path, config)
        reply = node.call("image", "pull", f"{fake.host}/none:1")
        check(reply.status != 0, f"{config} was no failure")
        check(any(word in reply.err for word in ("auth.json", "missing", "evil")), f"{config}: {reply.err}")
        check_secrets(node, fake, reply.err)
    write(path, "")
    refuse(node, fake, ["auth.json is empty"])
    os.unlink(path)
    refuse(node, fake, ["401"])
    write(path, login(fake.host))
    ask(node, fake)


def test_anonymous_pull(scratch):
    fake = FakeRegistry(scratch, auth="bearer", users={USER: SECRET})
    image = Image([{"file": noise(1000)}])
    peer = Peer(f"http://{fake.host}")
    fake.config(auth="none")
    peer.put("lib/x", "t", image)
    fake.config(auth="bearer", users={USER: SECRET})
    fake.reset()
    node = scratch.node("n1").start()
    node.ok("image", "pull", f"{fake.host}/lib/x:t")
    tokens = fake.records(part="/token")
    check_equal({(r["query"]["scope"], who(r)) for r in tokens}, {("repository:lib/x:pull", None)}, "tokens")


def test_credentials_stay_with_their_host(scratch):
    """Blobs lie in an object store that refuses requests with credentials; uploads go there, too."""
    settings = {"auth": "basic", "users": {USER: SECRET}}
    fake = FakeRegistry(scratch, **settings)
    site = private_site(scratch, fake)
    image = Image([{"file": noise(100000)}])
    Peer(f"http://{fake.host}", login=f"{USER}:{SECRET}").put("lib/x", "t", image)
    for status in (301, 302, 303, 307, 308):
        fake.config(redirect_blobs=status, **settings)
        fake.reset()
        site.node.ok("image", "pull", f"{fake.host}/lib/x:t")
        there = [r for r in fake.records("GET") if r["host"] == "other"]
        check_equal([r["status"] // 100 for r in there], [2] * len(there), f"answers of the object store after {status}")
        check(len(there) >= 2, f"requests to the object store after {status}: {there}")
        site.node.ok("image", "rm", f"{fake.host}/lib/x:t")
    for where in ("{other}{path}?_state={state}&X-Signature=fake-signature",):
        fake.config(upload_location=where, **settings)
        fake.reset()
        site.push()
        puts = fake.records("PUT,PATCH", "/uploads/")
        check_equal({r["host"] for r in puts}, {"other"}, "where uploads went")
    for status in (307, 308):
        fake.config(redirect_uploads=status, **settings)
        fake.reset()
        site.push()
        there = [r for r in fake.records("PUT,PATCH") if r["host"] == "other"]
        check(there and all(r["status"] in (201, 202) for r in there), f"uploads to the object store after {status}: {there}")
    check_secrets(site.node, fake)
    fake.config([{"host": "other", "status": 403, "body": "expired"}], redirect_blobs=307, **settings)
    line = site.node.fails(1, "image", "pull", f"{fake.host}/lib/x:t", says=["403"])
    check("fake-signature" not in line + site.node.log_text(), f"a signed address is shown: {line}")


def test_tls(scratch):
    tls = certificates(scratch)
    fake = FakeRegistry(scratch, tls=tls, auth="bearer", users={USER: SECRET}, realm="https://localhost:{main_port}/token")
    site = private_site(scratch, fake)
    site.push()
    check_equal({r["headers"]["host"].split(":")[0] for r in fake.records(part="/token")}, {"localhost"}, "token host")
    stranger = scratch.node("n2", remote=fake.url).start()
    stranger.fails(1, "image", "pull", f"{fake.host}/varve/images/s:1", says=["certificate", fake.host])


def test_client_certificates(scratch):
    """The registry's own address alone sees the certificate of the client."""
    tls = certificates(scratch)
    _, cert, key = certificates(scratch, "DNS:client", name="client")
    fake = FakeRegistry(scratch, tls=tls, client_ca=tls[0], redirect_blobs=307)
    site = Site(scratch, fake.url, config=f"[remote]\nca_file = {tls[0]}\nclient_cert = {cert}\nclient_key = {key}\n")
    made, _ = site.push()
    other = scratch.node("n2", remote=fake.url, config=f"[remote]\nca_file = {tls[0]}\nclient_cert = {cert}\nclient_key = {key}\n").start()
    other.ok("image", "pull", "s:1")
    seen = {(r["host"], r["cert"]) for r in fake.records()}
    check_equal(seen, {("main", True), ("other", False)}, "who saw the certificate")


if __name__ == "__main__":
    harness.main(globals())
