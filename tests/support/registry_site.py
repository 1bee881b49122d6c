"""What tests of pushes and pulls share: a node on a registry with snapshots to push, images that come from elsewhere, and
looks at what a registry has."""
import gzip
import hashlib
import io
import json
import os
import random
import tarfile
import threading

from harness import Failed, check, check_equal, run

OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker"
PIECE = 64 << 20


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def noise(size, seed=0):
    """Bytes that do not compress, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def layer_tar(files):
    """A layer with these files: {"name": bytes}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Image:
    """An image as its blobs and its manifest, made here, not by varve. `layers` are lists of files; each is packed by `pack`."""

    def __init__(self, layers, docker=False, pack=gzip.compress, suffix="gzip", platform=("linux", "amd64"), **extra):
        tars = [layer_tar(files) for files in layers]
        packed = [pack(tar) for tar in tars]
        config = json.dumps({"os": platform[0], "architecture": platform[1], "config": {}, "history": [],
                             "rootfs": {"type": "layers", "diff_ids": [digest(t) for t in tars]}}).encode()
        kinds = (f"{DOCKER}.container.image.v1+json", f"{DOCKER}.image.rootfs.diff.tar.gzip",
                 f"{DOCKER}.distribution.manifest.v2+json") if docker else (
                     f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar" + (f"+{suffix}" if suffix else ""), f"{OCI}.manifest.v1+json")
        self.blobs = [config, *packed]
        self.type = kinds[2]
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": kinds[2],
            "config": {"mediaType": kinds[0], "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": kinds[1], "digest": digest(b), "size": len(b)} for b in packed], **extra}).encode()
        self.platform = {"os": platform[0], "architecture": platform[1]}

    @property
    def descriptor(self):
        return {"mediaType": self.type, "digest": digest(self.manifest), "size": len(self.manifest), "platform": self.platform}


def index(descriptors, docker=False, **extra):
    """(media type, bytes) of an index."""
    kind = f"{DOCKER}.distribution.manifest.list.v2+json" if docker else f"{OCI}.index.v1+json"
    return kind, json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": descriptors, **extra}).encode()


class Peer:
    """Another client of a registry: curl. `base` is "http://host:port"; `login` is "user:password"."""

    def __init__(self, base, login=None, ca=None):
        self.base = base
        self.options = ["curl", "-sS", "--noproxy", "*", "--fail-with-body"]
        self.options += ["-u", login] if login else []
        self.options += ["--cacert", ca] if ca else []

    def ask(self, method, path, body=None, kind="application/octet-stream"):
        """The body of an answer, which must be 2xx. Bodies are bytes."""
        url = path if "://" in path else self.base + path
        command = [*self.options, "-X", method, url] if method != "HEAD" else [*self.options, "-I", url]
        if body is not None:
            command += ["-H", f"Content-Type: {kind}", "-H", "Expect:", "--data-binary", "@-"]
        return run(command, input=body, text=False)

    def location(self, repository):
        head = run([*self.options, "-D", "-", "-o", "/dev/null", "-X", "POST", "-d", "",
                    f"{self.base}/v2/{repository}/blobs/uploads/"])
        found = [line.split(": ", 1)[1].strip() for line in head.splitlines() if line.lower().startswith("location:")]
        return found[0]

    def put_blob(self, repository, data):
        place = self.location(repository)
        self.ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest(data)}", data)

    def put_manifest(self, repository, reference, kind, data):
        self.ask("PUT", f"/v2/{repository}/manifests/{reference}", data, kind)

    def put(self, repository, tag, image):
        for blob in image.blobs:
            self.put_blob(repository, blob)
        self.put_manifest(repository, tag or digest(image.manifest), image.type, image.manifest)

    def manifest(self, repository, reference):
        """Its bytes."""
        accept = ["-H", f"Accept: {OCI}.manifest.v1+json, {OCI}.index.v1+json"]
        return run([*self.options, *accept, f"{self.base}/v2/{repository}/manifests/{reference}"], text=False)

    def has_manifest(self, repository, reference):
        try:
            return bool(self.manifest(repository, reference))
        except Failed as failure:
            check("404" in str(failure), failure)
            return False

    def check_whole(self, repository, reference):
        """Everything that the manifest names is there, with its size and digest; gives the manifest."""
        manifest = json.loads(self.manifest(repository, reference))
        for part in [manifest["config"], *manifest["layers"]]:
            data = self.ask("GET", f"/v2/{repository}/blobs/{part['digest']}")
            check_equal((digest(data), len(data)), (part["digest"], part["size"]), "blob in the registry")
        return manifest


def fresh(fake, rules=(), **settings):
    """Other rules and settings, and no records."""
    fake.config(rules, **settings)
    fake.reset()


def said_by(node):
    """What the daemon has written down: its log and its catalog."""
    texts = []
    for path in (node.log, f"{node.data}/catalog.db", f"{node.data}/catalog.db-wal"):
        if os.path.exists(path):
            with open(path, "rb") as f:
                texts.append(f.read().decode("latin1"))
    return texts


def at_once(node, commands):
    """Runs all of them beside each other; gives their replies in this order."""
    replies = [None] * len(commands)

    def run_one(number):
        replies[number] = node.call(*commands[number])

    threads = [threading.Thread(target=run_one, args=(number,)) for number in range(len(commands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(None not in replies, "a command did not end")
    return replies


def check_remote(fake, made):
    """What was made is whole in the registry, as what it is."""
    manifest = Peer(f"http://{fake.host}").check_whole("varve/images/s", made["digest"])
    check_equal([layer["digest"] for layer in manifest["layers"]], made["layers"], "layers in the registry")
    subjects = [r for r in fake.records("PUT", "/manifests/") if "subject" in json.loads(r["body"])]
    check_equal(subjects, [], "manifests with a subject that nobody asked for")


class Site:
    """A node with a run, whose snapshots have a layer of noise each."""

    def __init__(self, scratch, remote, config="", name="n1", start=None, **options):
        self.scratch = scratch
        self.node = scratch.node(name, remote=remote, config=config, **options).start(**(start or {}))
        self.made = 0
        tree = scratch.path(f"{name}-tree")
        os.makedirs(f"{tree}/etc")
        with open(f"{tree}/etc/base", "w", encoding="utf-8") as f:
            f.write("base")
        run(["tar", "-C", tree, "-cf", scratch.path(f"{name}.tar"), "."])
        self.node.ok("image", "import", scratch.path(f"{name}.tar"), "--name", "base:1")
        self.rootfs = self.node.ok("run", "create", "base:1", "--id", "r", "--plain-upper")["rootfs"]

    def snapshot(self, size=1000, name=None):
        """A new snapshot whose own layer has about `size` bytes; gives its document."""
        self.made += 1
        with open(f"{self.rootfs}/noise", "wb") as f:
            for at in range(0, max(size, 1), PIECE):
                f.write(noise(min(PIECE, size - at), self.made + (at << 8)))
        return self.node.ok("snapshot", "create", "--run", "r", "--name", name or f"s:{self.made}")

    def durability(self, made):
        return self.node.ok("snapshot", "inspect", made["id"])["durability"]

    def push(self, size=1000, **options):
        """A new snapshot, pushed; gives (snapshot, what the push said)."""
        made = self.snapshot(size)
        return made, self.node.ok("snapshot", "push", made["id"], **options)

    def push_fails(self, says, size=1000, status=1):
        """A new snapshot cannot be pushed; gives (snapshot, the line that was said). A status of None is any but 0."""
        made = self.snapshot(size)
        if status is None:
            reply = self.node.call("snapshot", "push", made["id"])
            check(reply.status != 0, f"the push of {made['id']} succeeded")
            return made, reply.err
        return made, self.node.fails(status, "snapshot", "push", made["id"], says=says)

    def check_file(self, image, name, data, run_id="look"):
        """A run of the image has this file."""
        made = self.node.ok("run", "create", image, "--id", run_id, "--plain-upper")
        with open(os.path.join(made["rootfs"], name), "rb") as f:
            check(f.read() == data, f"{name} in a run of {image} is another one")
        self.node.ok("run", "rm", run_id)
