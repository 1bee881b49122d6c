"""Volumes that several nodes have, and what a remote has of them, for tests: read by code of the tests' own."""
import json
import os
import re
import shutil
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from harness import check_equal  # noqa: E402  pylint: disable=wrong-import-position
from test_checkpoint import change, checkpoint, mounted, tree  # noqa: E402  pylint: disable=wrong-import-position


def remote_of(scratch, kind):
    return scratch.registry().url if kind == "registry" else f"oci:{scratch.path('layout')}"


def twins(scratch, remote, size="64M", token=None):
    """Two nodes with one volume, which has a checkpoint: the second one's data is a copy of the first one's."""
    node = scratch.node("n1", remote=remote).start()
    options = ["--token", str(token)] if token else []
    node.ok("workspace", "create", "w", "--size", size, *options)
    path, _ = mounted(node, scratch, "w")
    change(path, 1, files=5, size=30_000)
    checkpoint(node)
    node.ok("workspace", "unmount", "w")
    node.stop()
    shutil.copytree(node.data, scratch.path("copy"), symlinks=True)
    nodes = [node, scratch.node("n2", remote=remote, data=scratch.path("copy"))]
    for each in nodes:
        each.start()
        mounted(each, scratch, "w")
    return nodes


def place(node):
    return node.scratch.path(f"mnt-{node.name}-w")


def history(node, name="w"):
    return node.ok("workspace", "history", name)["checkpoints"]


def looks_like(node, reference, wanted, what):
    """What a checkpoint has, by a fork on a node."""
    node.ok("workspace", "create", "probe", "--from", reference)
    path, _ = mounted(node, node.scratch, "probe", f"probe-{node.name}")
    found = tree(path)
    node.ok("workspace", "unmount", "probe")
    node.ok("workspace", "rm", "probe")
    check_equal(found, wanted, what)


# --- What a remote has, by a reader of the test's own ---

class Layout:
    def __init__(self, url):
        self.root = url.split(":", 1)[1]

    def tags(self):
        with open(f"{self.root}/index.json", encoding="utf-8") as f:
            entries = json.load(f)["manifests"]
        names = {m.get("annotations", {}).get("org.opencontainers.image.ref.name", ""): m["digest"] for m in entries}
        return {name.rsplit(":", 1)[1]: digest for name, digest in names.items() if ":" in name}

    def manifest(self, digest):
        with open(f"{self.root}/blobs/sha256/{digest[7:]}", encoding="utf-8") as f:
            return json.load(f)


class Hub:
    def __init__(self, url, lineage):
        base, prefix = re.fullmatch(r"(http://[^/]+)/(.*)", url).groups()
        self.repository = f"{base}/v2/{prefix}/volumes/{lineage}"

    def get(self, path):
        accept = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
        request = urllib.request.Request(f"{self.repository}/{path}", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.headers.get("Docker-Content-Digest"), json.load(reply)

    def tags(self):
        _, listed = self.get("tags/list")
        return {tag: self.get(f"manifests/{tag}")[0] for tag in listed["tags"] if re.match("[0-9a-f]{12}-", tag)}

    def manifest(self, digest):
        return self.get(f"manifests/{digest}")[1]


def remote_reader(url, lineage):
    return Layout(url) if url.startswith("oci:") else Hub(url, lineage)


def kept(reader, volume):
    """The indexes under kept tags, as (token, generation, digest), with their parents."""
    found = {}
    for tag, digest in reader.tags().items():
        if re.match(f"{volume}-g[0-9]+-", tag):
            about = reader.manifest(digest)["annotations"]
            key = (int(about["vnd.varve.token"]), int(about["vnd.varve.generation"]), digest)
            found[key] = about.get("vnd.varve.parent")
    return found
