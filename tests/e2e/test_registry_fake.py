#!/usr/bin/env python3
"""The fake registry itself, as other tests rely on it: a correct registry for curl and skopeo, and each way in which a rule
or a setting breaks it, seen from the wire."""
import hashlib
import http.client
import json
import os
import socket
import ssl
import time

import harness
from harness import Failed, check, check_equal, run
from fake_registry import FakeRegistry, certificates

NOISE = os.urandom(300000)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Client:
    """One connection and what came of the last request."""

    def __init__(self, host, tls_ca=None):
        name, port = host.split(":")
        if tls_ca:
            context = ssl.create_default_context(cafile=tls_ca)
            self.link = http.client.HTTPSConnection(name, int(port), timeout=20, context=context)
        else:
            self.link = http.client.HTTPConnection(name, int(port), timeout=20)

    def ask(self, method, path, body=None, **headers):
        """(status, headers, body)"""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.link.request(method, path, body, named)
        answer = self.link.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def begin(self, repository="a/b"):
        status, headers, _ = self.ask("POST", f"/v2/{repository}/blobs/uploads/")
        check_equal(status, 202, "status of a new upload")
        return path_of(headers["location"])

    def push(self, data, repository="a/b"):
        place = self.begin(repository)
        return self.ask("PUT", f"{place}&digest={digest(data)}", data)[0]


def path_of(location):
    return "/" + location.split("/", 3)[3] if "://" in location else location


def broken(function):
    """What a request that has no whole answer ends in."""
    try:
        function()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    raise Failed("the answer was whole")


def sample(scratch):
    """An image with a layer of 300 kB in a layout."""
    layout, bundle = scratch.path("layout"), scratch.path("bundle")
    run(["umoci", "init", "--layout", layout])
    run(["umoci", "new", "--image", f"{layout}:v1"])
    run(["umoci", "unpack", "--image", f"{layout}:v1", bundle])
    with open(f"{bundle}/rootfs/noise", "wb") as f:
        f.write(NOISE)
    run(["umoci", "repack", "--image", f"{layout}:v1", bundle])
    return layout


def copy_both_ways(scratch, fake, *, login="", certs=None):
    layout = sample(scratch)
    source, target = (["--src-tls-verify=false"], ["--dest-tls-verify=false"])
    if certs:
        source, target = ([f"--src-cert-dir={certs}"], [f"--dest-cert-dir={certs}"])
    if login:
        source += ["--src-creds", login]
        target += ["--dest-creds", login]
    run(["skopeo", "copy", *target, f"oci:{layout}:v1", f"docker://{fake.host}/a/b:t1"])
    run(["skopeo", "copy", *source, f"docker://{fake.host}/a/b:t1", f"oci:{scratch.path('out')}:v1"])
    have = run(["skopeo", "inspect", "--raw", f"oci:{scratch.path('out')}:v1"])
    check_equal(have, run(["skopeo", "inspect", "--raw", f"oci:{layout}:v1"]), "manifest that came back")
    for name in (d["digest"] for d in [json.loads(have)["config"], *json.loads(have)["layers"]]):
        with open(f"{scratch.path('out')}/blobs/sha256/{name[7:]}", "rb") as f:
            check_equal(digest(f.read()), name, "blob that came back")


def test_skopeo_anonymous(scratch):
    fake = FakeRegistry(scratch)
    copy_both_ways(scratch, fake)
    patched = fake.records("PATCH")
    check(patched and all(r["upload"]["from"] == 0 and r["bytes"] == r["upload"]["to"] for r in patched),
          f"records of chunks: {patched}")
    run(["skopeo", "delete", "--tls-verify=false", f"docker://{fake.host}/a/b:t1"])
    check_equal(json.loads(fake.ask("GET", "/v2/a/b/tags/list")), {"name": "a/b", "tags": []}, "tags after delete")


def test_skopeo_basic(scratch):
    copy_both_ways(scratch, FakeRegistry(scratch, auth="basic", users={"u": "p:w"}), login="u:p:w")


def test_skopeo_tokens_tls(scratch):
    tls = certificates(scratch)
    fake = FakeRegistry(scratch, tls=tls, auth="bearer", users={"u": "p"})
    os.makedirs(scratch.path("certs"))
    os.link(tls[0], scratch.path("certs", "ca.crt"))
    copy_both_ways(scratch, fake, login="u:p", certs=scratch.path("certs"))
    asked = [r for r in fake.records() if r["path"] == "/token"]
    check(any("pull,push" in r["query"]["scope"] for r in asked), f"tokens that were asked for: {asked}")
    used = Client(fake.host, tls[0]).ask("GET", "/v2/a/b/tags/list", Authorization="Bearer none")
    check_equal((used[0], used[1]["www-authenticate"]),
                (401, f'Bearer realm="{fake.scheme}://{fake.host}/token",service="fake",'
                      'scope="repository:a/b:pull",error="invalid_token"'), "a token that never was")


def test_uploads(scratch):
    fake = FakeRegistry(scratch)
    client = Client(fake.host)
    place = client.begin()
    status, headers, _ = client.ask("PATCH", place, NOISE[:1000], Content_Range="0-999")
    check_equal((status, headers["range"]), (202, "0-999"), "first chunk")
    old, place = place, path_of(headers["location"])
    check(old != place, f"the Location stayed {place}")
    check_equal(client.ask("PATCH", old, b"x")[0], 404, "status with an old Location")
    status, headers, _ = client.ask("PATCH", place, NOISE[2000:3000], Content_Range="2000-2999")
    check_equal((status, headers["range"]), (416, "0-999"), "chunk at a wrong offset")
    status, headers, _ = client.ask("GET", old)
    check_equal((status, headers["range"]), (204, "0-999"), "an upload that is asked for")
    place = path_of(headers["location"])
    status, headers, _ = client.ask("PATCH", place, iter([NOISE[1000:5000], NOISE[5000:100000]]))
    check_equal((status, headers["range"]), (202, "0-99999"), "body in HTTP chunks")
    place = path_of(headers["location"])
    status, headers, _ = client.ask("PUT", f"{place}&digest={digest(NOISE)}", NOISE[100000:])
    check_equal((status, headers["docker-content-digest"]), (201, digest(NOISE)), "end of an upload")
    check_equal(client.ask("GET", place)[0], 404, "status of an upload that has ended")
    check_equal(client.push(b""), 201, "status of an empty blob")
    status, _, body = client.ask("PUT", f"{client.begin()}&digest={digest(b'y')}", b"x")
    check_equal((status, json.loads(body)["errors"][0]["code"]), (400, "DIGEST_INVALID"), "wrong digest")
    check_equal(client.ask("POST", f"/v2/a/b/blobs/uploads/?digest={digest(b'one')}", b"one")[0], 201, "one POST")
    check_equal(client.ask("POST", f"/v2/c/blobs/uploads/?mount={digest(b'one')}&from=a/b")[0], 201, "mount")
    check_equal(client.ask("POST", f"/v2/c/blobs/uploads/?mount={digest(b'no')}&from=a/b")[0], 202, "mount of nothing")
    check_equal(client.ask("GET", f"/v2/c/blobs/{digest(b'one')}")[2], b"one", "what was mounted")


def test_ranges(scratch):
    fake = FakeRegistry(scratch)
    client = Client(fake.host)
    client.push(NOISE)
    path = f"/v2/a/b/blobs/{digest(NOISE)}"
    last = len(NOISE) - 1
    for wanted, status, part, said in (
            ("bytes=10-19", 206, NOISE[10:20], f"bytes 10-19/{len(NOISE)}"),
            ("bytes=299000-", 206, NOISE[299000:], f"bytes 299000-{last}/{len(NOISE)}"),
            ("bytes=-5", 206, NOISE[-5:], f"bytes {last - 4}-{last}/{len(NOISE)}"),
            ("bytes=299990-400000", 206, NOISE[299990:], f"bytes 299990-{last}/{len(NOISE)}"),
            ("bytes=300000-", 416, None, f"bytes */{len(NOISE)}"), ("bytes=5-1", 200, NOISE, None),
            ("bytes=0-1,4-5", 200, NOISE, None), ("lines=1-2", 200, NOISE, None)):
        have, headers, body = client.ask("GET", path, Range=wanted)
        check_equal((have, headers.get("content-range")), (status, said), wanted)
        check(part is None or body == part, f"bytes of {wanted}")
    status, headers, body = client.ask("HEAD", path)
    check_equal((status, headers["content-length"], body), (200, str(len(NOISE)), b""), "HEAD")
    fake.config(ranges=False)
    check_equal(client.ask("GET", path, Range="bytes=1-2")[0], 200, "status when ranges are ignored")


def test_manifests_and_tags(scratch):
    fake = FakeRegistry(scratch, tags_page=2)
    client = Client(fake.host)
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "layers": [],
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(b"{}"), "size": 2}}
    text = json.dumps(manifest).encode()
    status, _, body = client.ask("PUT", "/v2/a/b/manifests/v1", text, Content_Type=kind)
    check_equal((status, json.loads(body)["errors"][0]["detail"]["digest"]), (400, digest(b"{}")), "missing config")
    client.push(b"{}")
    for tag in ("v3", "v1", "v2", "v10", "v5"):
        check_equal(client.ask("PUT", f"/v2/a/b/manifests/{tag}", text, Content_Type=kind)[0], 201, f"tag {tag}")
    status, headers, body = client.ask("GET", f"/v2/a/b/manifests/{digest(text)}")
    check_equal((status, headers["content-type"], body), (200, kind, text), "manifest by digest")
    tags, path = [], "/v2/a/b/tags/list"
    while path:
        _, headers, body = client.ask("GET", path)
        tags += json.loads(body)["tags"]
        path = headers.get("link", "<>").split(">")[0][1:]
    check_equal(tags, ["v1", "v10", "v2", "v3", "v5"], "tags of all pages")
    child = dict(manifest, subject={"mediaType": kind, "digest": digest(text), "size": len(text)})
    status, headers, _ = client.ask("PUT", "/v2/a/b/manifests/child", json.dumps(child).encode(), Content_Type=kind)
    check_equal((status, headers["oci-subject"]), (201, digest(text)), "subject")
    status, _, body = client.ask("GET", f"/v2/a/b/referrers/{digest(text)}")
    check_equal([d["digest"] for d in json.loads(body)["manifests"]], [digest(json.dumps(child).encode())], "referrers")
    check_equal(client.ask("DELETE", "/v2/a/b/manifests/v5")[0], 202, "delete of a tag")
    check_equal(client.ask("GET", "/v2/a/b/manifests/v3")[0], 200, "another tag of it")
    check_equal(client.ask("DELETE", f"/v2/a/b/manifests/{digest(text)}")[0], 202, "delete by digest")
    check_equal(client.ask("GET", "/v2/a/b/manifests/v3")[0], 404, "tag of what was deleted")
    fake.config(delete=False, referrers=False)
    check_equal(client.ask("DELETE", "/v2/a/b/manifests/child")[0], 405, "delete that is refused")
    check_equal(client.ask("GET", f"/v2/a/b/referrers/{digest(text)}")[0], 404, "no referrers API")


def test_garbage(scratch):
    fake = FakeRegistry(scratch, blob_ms=100)
    client = Client(fake.host)
    client.push(b"old")
    time.sleep(0.12)
    client.push(b"new")
    check_equal([client.ask("HEAD", f"/v2/a/b/blobs/{digest(b)}")[0] for b in (b"old", b"new")], [404, 200], "blobs")
    fake.forget(digest(b"new"))
    check_equal(client.ask("HEAD", f"/v2/a/b/blobs/{digest(b'new')}")[0], 404, "status of a blob that was forgotten")
    place = client.begin()
    fake.forget("uploads")
    check_equal(client.ask("PATCH", place, b"x")[0], 404, "status of an upload that was forgotten")


def test_redirects(scratch):
    fake = FakeRegistry(scratch, auth="basic", users={"u": "p"}, redirect_blobs=307)
    login = {"Authorization": "Basic dTpw"}
    client = Client(fake.host)
    place = path_of(client.ask("POST", "/v2/n/blobs/uploads/", **login)[1]["location"])
    client.ask("PUT", f"{place}&digest={digest(b'x')}", b"x", **login)
    status, headers, _ = client.ask("GET", f"/v2/n/blobs/{digest(b'x')}", **login)
    check_equal((status, headers["location"]),
                (307, f"http://{fake.other}/v2/n/blobs/{digest(b'x')}?X-Signature=fake-signature"), "redirect")
    other = Client(fake.other)
    check_equal(other.ask("GET", path_of(headers["location"]))[2], b"x", "what the object store gives")
    check_equal(other.ask("GET", path_of(headers["location"]), **login)[0], 400, "status with credentials")
    check_equal(other.ask("GET", path_of(headers["location"]), Cookie="a=b")[0], 400, "status with a cookie")
    check_equal(client.ask("GET", "/v2/")[1]["www-authenticate"], 'Basic realm="fake"', "challenge")


def test_tokens(scratch):
    fake = FakeRegistry(scratch, auth="bearer", users={"u": "p"}, token_ms=300, token_uses=2, refresh_tokens=["r1"])
    client = Client(fake.host)

    def token(method="GET", body=None, query="?scope=repository:n:pull,push", **headers):
        status, _, text = client.ask(method, "/token" + query, body, **headers)
        return status, json.loads(text).get("token"), json.loads(text).get("expires_in")

    def begin(value):
        return client.ask("POST", "/v2/n/blobs/uploads/", Authorization=f"Bearer {value}")[0]

    status, value, seconds = token(Authorization="Basic dTpw")
    check_equal((status, seconds), (200, 1), "token for a user")
    check_equal(begin(value), 202, "status with the token")
    time.sleep(0.32)
    check_equal(begin(value), 401, "status with the token when it has expired")
    check_equal(begin(token()[1]), 401, "status of a push with an anonymous token")
    check_equal(token(Authorization="Basic dTp4")[0], 401, "status of a token for a wrong password")
    form = "grant_type=refresh_token&service=fake&scope=repository%3An%3Apull%2Cpush&refresh_token="
    check_equal(token("POST", form + "r2", "")[0], 401, "status of a token for a wrong refresh token")
    value = token("POST", form + "r1", "")[1]
    check_equal([begin(value) for _ in range(3)], [202, 202, 401], "a token of two uses")


def test_rules(scratch):
    fake = FakeRegistry(scratch, rules=[
        {"path": "/v2/one", "nth": 2, "times": 2, "status": 503, "headers": {"Retry-After": "3"}, "body": {"a": 1}},
        {"path": "/v2/date", "status": 429, "headers": {"Retry-After": "{date+60}", "X": ["{other_port}", "2"]}},
        {"path": "/v2/raw", "raw": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"},
        {"path": "/v2/reset", "end": "reset", "work": False}, {"path": "/v2/head", "status": 200, "send_head": 9},
        {"path": "/v2/stall", "status": 200, "body": "abcdef", "send": 3, "end": "stall"},
        {"path": "/v2/repeat", "status": 200, "body": "ab", "repeat": 7, "flip": 0},
        {"path": "/v2/slow", "status": 200, "body": "abcdefgh", "send_rate": 40, "delay_ms": 50},
        {"path": "/v2/length", "status": 200, "body": "abc", "headers": {"content-length": "2"}, "end": "close"},
        {"path": "/v2/until", "status": 200, "body": "abc", "no_length": True},
        {"path": "/v2/bytes", "status": 200, "body": "a\xff\x80z", "latin1": True}, {"path": "/v2/big", "status": 200, "filler": 5000}, {"path": "/v2/short", "status": 200, "body": "abc", "cut": 1}])

    def get(name):
        return Client(fake.host).ask("GET", f"/v2/{name}")

    check_equal([get("one")[0] for _ in range(4)], [404, 503, 503, 404], "second and third")
    once = fake.records(part="/v2/one")[1]
    check_equal((once["rule"], once["answer"]["retry-after"], once["answer"]["content-type"]), (0, "3", "application/json"),
                "record")
    date = get("date")[1]["retry-after"]
    check(50 <= time.mktime(time.strptime(date, "%a, %d %b %Y %H:%M:%S GMT")) - time.mktime(time.gmtime()) <= 60, date)
    check_equal(broken(lambda: get("raw")), "IncompleteRead", "raw")
    check_equal(broken(lambda: get("reset")), "ConnectionResetError", "reset")
    check(broken(lambda: get("head")) in ("BadStatusLine", "RemoteDisconnected"), "head of nine bytes")
    with socket.create_connection(fake.host.split(":"), timeout=20) as link:
        link.sendall(b"GET /v2/stall HTTP/1.1\r\nHost: x\r\n\r\n")
        got = b""
        while not got.endswith(b"abc"):
            got += link.recv(1000)
        link.settimeout(0.2)
        check_equal(broken(lambda: link.recv(1)), "TimeoutError", "silence in the middle of a body")
    check_equal(get("repeat")[2], b"`bababa", "repeated body with another first byte")
    start = time.monotonic()
    check_equal(get("slow")[2], b"abcdefgh", "slow body")
    check(0.2 <= time.monotonic() - start < 10, f"took {time.monotonic() - start} s")
    check_equal((get("length")[2], get("until")[2], get("short")[2]), (b"ab", b"abc", b"ab"), "lengths")
    check_equal(get("bytes")[2], b"a\xff\x80z", "bytes that are no UTF-8")
    check_equal(len(get("big")[1]["x-filler"]), 5000, "length of a header")
    ends = {r["path"].split("/")[-1]: r["end"] for r in fake.records()}
    check_equal((ends["raw"], ends["reset"], ends["stall"], ends["repeat"]), ("closed", "reset", "stalled", "kept"), "ends")


def cut_upload(scratch, interrupted, end):
    """What an upload has of 10,000 bytes after 6,000, of which 1,000 had been there: (status, Range)."""
    fake = FakeRegistry(scratch, interrupted=interrupted)
    client = Client(fake.host)
    place = path_of(client.ask("PATCH", client.begin(), NOISE[:1000])[1]["location"])
    fake.config([{"method": "PATCH", "read": 5000, "end": end}], interrupted=interrupted)
    how = broken(lambda: client.ask("PATCH", place, NOISE[1000:10000]))
    check(how in ("ConnectionResetError", "BrokenPipeError", "RemoteDisconnected"), how)
    record = fake.records("PATCH")[-1]
    check_equal((record["bytes"], record["status"], record["end"]), (5000, 0, {"close": "closed"}.get(end, end)), "record")
    status, headers, _ = Client(fake.host).ask("GET", place)
    return status, headers.get("range")


def test_bodies_that_are_cut(scratch):
    check_equal(cut_upload(scratch, "keep", "reset"), (204, "0-5999"), "kept bytes")
    check_equal(cut_upload(scratch, "drop", "close"), (204, "0-999"), "dropped bytes")
    check_equal(cut_upload(scratch, "forget", "close"), (404, None), "a forgotten session")


def test_bodies_that_the_client_cuts(scratch):
    fake = FakeRegistry(scratch)
    place = Client(fake.host).begin()
    with socket.create_connection(fake.host.split(":"), timeout=20) as link:
        link.sendall(f"PATCH {place} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".encode() + b"x" * 40)
    harness.wait_for(lambda: fake.records("PATCH")[-1]["done"], 20, "end of the request")
    record = fake.records("PATCH")[-1]
    check_equal((record["bytes"], record["end"], record["status"]), (40, "lost", 0), "record")
    check_equal(Client(fake.host).ask("GET", place)[1]["range"], "0-39", "what came")


def test_early_answers(scratch):
    """A refusal does not wait for the body; one behind a large body ends the connection, and is not lost."""
    fake = FakeRegistry(scratch, auth="basic")
    with socket.create_connection(fake.host.split(":"), timeout=20) as link:
        link.sendall(b"PUT /v2/n/manifests/t HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        check(link.recv(1000).startswith(b"HTTP/1.1 401 "), "refusal before the body")
    fake.config([{"method": "PATCH", "read": 70000, "status": 413}])
    client = Client(fake.host)
    status, headers, _ = client.ask("PATCH", client.begin(), NOISE)
    check_equal((status, headers.get("connection")), (413, None), "refusal of a small body")
    check_equal(client.ask("GET", "/v2/")[0], 200, "the next request on the same connection")
    check_equal(fake.records("PATCH")[0]["bytes"], len(NOISE), "bytes that were taken")


def test_work_without_an_answer(scratch):
    fake = FakeRegistry(scratch, [{"method": "PUT", "work": True, "send_head": 0}])
    check_equal(broken(lambda: Client(fake.host).push(b"x")), "RemoteDisconnected", "answer")
    check_equal(Client(fake.host).ask("GET", f"/v2/a/b/blobs/{digest(b'x')}")[2], b"x", "what was stored")


def test_failing_calls(scratch):
    """The same seed fails the same calls, about as many as wanted."""
    fail = {"percent": 10, "seed": 4, "statuses": [500, 502, 503, 429], "retry_after": 1}
    fake = FakeRegistry(scratch, fail=fail)
    client = Client(fake.host)
    first = [client.ask("GET", "/v2/")[0] for _ in range(400)]
    fake.config(fail=fail)
    check_equal([client.ask("GET", "/v2/")[0] for _ in range(400)], first, "the same again")
    failed = [s for s in first if s != 200]
    check(20 <= len(failed) <= 60 and set(failed) == {500, 502, 503, 429}, f"failed calls: {failed}")
    waits = {r["answer"].get("retry-after") for r in fake.records() if r["status"] in (429, 503)}
    check_equal(waits, {"1"}, "Retry-After")


def test_bad_configurations_are_refused(scratch):
    fake = FakeRegistry(scratch, auth="basic")
    for bad in ("[]", "{", '{"rules":{}}', '{"rules":[{"metod":"GET"}]}', '{"settings":{"auht":"basic"}}',
                '{"settings":{"ranges":1}}', '{"rules":[{"end":"bang"}]}', '{"settings":{"fail":{"percent":"x"}}}'):
        check_equal(Client(fake.host).ask("PUT", "/_fake/config", bad)[0], 400, f"status of {bad}")
    check_equal(Client(fake.host).ask("GET", "/v2/")[0], 401, "the configuration as it was")


def test_many_at_once(scratch):
    """Records count what is under way; nothing is mixed up."""
    fake = FakeRegistry(scratch, [{"path": "/v2/wait", "status": 200, "delay_ms": 300}])
    links = [Client(fake.host) for _ in range(20)]
    for link in links:
        link.link.request("GET", "/v2/wait")
    check_equal([link.link.getresponse().status for link in links], [200] * 20, "answers")
    check_equal(max(r["inflight"] for r in fake.records()), 20, "most requests under way")
    check_equal(sorted(r["conn"] for r in fake.records()), list(range(1, 21)), "connections")


if __name__ == "__main__":
    harness.main(globals())
