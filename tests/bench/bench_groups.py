"""The groups of varve-bench. Each takes a Site and the number of rounds and prints tables."""
import os
import subprocess
import sys
import threading
import time

import layouts
import trees
from measure import Case, group, seconds, shell

BWRAP = "--dev /dev --proc /proc --unshare-all /bin/true"
UNTAR = {"zstd": "zstd -q -d", "gzip": "gzip -d"}


def note(text):
    print(text, file=sys.stderr, flush=True)


class Image:
    """The agent's image: 20,000 files, 420 MiB, as a tree, a tar and layouts; made once."""

    def __init__(self, site):
        self.tree = site.path("tree")
        self.tar = site.path("tree.tar")
        note("making the tree")
        trees.agent_tree(self.tree)
        shell(f"tar --xattrs --sort=name --numeric-owner -C {self.tree} -cf {self.tar} .")
        self.layers = {}
        for packing in UNTAR:
            layout = site.path("layout-" + packing)
            self.layers[packing] = layouts.make(layout, [(self.tar, packing)])[0]
            site.push(layout, "bench-" + packing)


def image_of(site):
    if not hasattr(site, "image"):
        site.start_registry()
        site.image = Image(site)
    return site.image


def cold(site, rounds):
    """From "in the registry" to the end of the first command on a node that has nothing."""
    image = image_of(site)
    for packing, untar in UNTAR.items():
        cold_of(site, rounds, image, packing, untar)


def cold_of(site, rounds, image, packing, untar):
    host = site.registry.host
    name = f"{host}/varve/bench-{packing}:1"
    root = os.path.join(site.disk, "root")
    blob = f"http://{host}/v2/varve/bench-{packing}/blobs/{image.layers[packing]['digest']}"
    pipeline = f"mkdir {root}; curl -sSf {blob} | {untar} | tar -C {root} --xattrs -xf -"
    environment = site.podman_environment()

    def node():
        site.fresh_disk()
        site.start_node()
        environment["VARVE_HOST"] = os.environ["VARVE_HOST"]

    group(f"Cold start, {packing} layer of {image.layers[packing]['size'] >> 20} MiB", [
        Case(f"curl, {untar}, tar -x, bwrap", f"{pipeline}; bwrap --bind {root} / {BWRAP}",
             site.fresh_disk, cold=True),
        Case("the same, and sync", f"{pipeline}; bwrap --bind {root} / {BWRAP}; sync -f {root}",
             site.fresh_disk, cold=True),
        Case("podman run --pull=always",
             f"podman run --rm --pull=always --tls-verify=false --network host {name} /bin/true",
             site.fresh_disk, cold=True),
        Case("varve run create, run exec",
             f"{site.varve} run create {name} --id bench >/dev/null && "
             f"{site.varve} run exec bench -- /bin/true", node, cold=True),
    ], rounds, environment=environment)
    site.stop_node()


def warm(site, rounds):
    """Starts on a node that has the image."""
    image_of(site)
    name = f"{site.registry.host}/varve/bench-zstd:1"
    environment = site.podman_environment()
    site.fresh_disk()
    site.start_node()
    environment["VARVE_HOST"] = os.environ["VARVE_HOST"]
    shell(f"podman pull -q --tls-verify=false {name}", env=environment)
    shell(f"{site.varve} image pull {name}")
    counter = iter(range(1 << 30))
    ids = {}

    def case(label, command):
        result = Case(label, "")

        def prepare():
            ids[label] = f"w{next(counter)}"
            result.command = command.replace("ID", ids[label])
        result.prepare = prepare
        return result

    group("Warm start", [
        Case("podman run true", f"podman run --rm --network host {name} /bin/true"),
        case("varve run create", f"{site.varve} run create {name} --id ID"),
        case("varve run create, exec true", f"{site.varve} run create {name} --id ID >/dev/null && "
             f"{site.varve} run exec ID -- /bin/true"),
        Case("varve version (cost of one call)", f"{site.varve} version"),
    ], rounds * 4, warm=1, environment=environment)
    burst(site, name)
    site.stop_node()


def burst(site, name, count=100):
    """Many runs of one image at once, each by its own client process."""
    start = time.monotonic()
    children = [subprocess.Popen([site.varve, "run", "create", name, "--id", f"b{n}"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                for n in range(count)]
    failed = [child for child in children if child.wait() != 0]
    wall = time.monotonic() - start
    print(f"\n{count} runs created at once: {seconds(wall)}, {len(failed)} failed")
    if failed:
        raise RuntimeError(failed[0].stderr.read().decode())


def read_all(site, rounds):
    """All files of the mounted image against the same tree on ext4."""
    image = image_of(site)
    name = f"{site.registry.host}/varve/bench-zstd:1"
    site.fresh_disk()
    site.start_node()
    shell(f"{site.varve} run create {name} --id bench")
    plain = os.path.join(site.disk, "plain")
    shell(f"mkdir {plain} && tar -C {plain} --xattrs -xf {image.tar} && sync")
    rootfs = site.node.ok("run", "inspect", "bench")["rootfs"]

    def read(path):
        return f"tar -C {path} -cf - . | cat > /dev/null"
    for state, is_cold in (("warm", False), ("cold", True)):
        group(f"Reading all files, {state}", [
            Case("ext4", read(plain), cold=is_cold),
            Case("run's root filesystem", read(rootfs), cold=is_cold),
        ], rounds * 2, warm=0 if is_cold else 1)
        group(f"Looking at all inodes, {state}", [
            Case("ext4", f"find {plain} -printf %s > /dev/null", cold=is_cold),
            Case("run's root filesystem", f"find {rootfs} -printf %s > /dev/null", cold=is_cold),
        ], rounds * 2, warm=0 if is_cold else 1)
    site.stop_node()


class Peak:
    """Largest resident memory of the converting children, looked at 50 times a second."""

    def __init__(self):
        self.kib = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.ended.wait(0.02):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                        if f.read().strip() != "varve-convert":
                            continue
                    with open(f"/proc/{pid}/status", encoding="ascii") as f:
                        for line in f:
                            if line.startswith("RssAnon:"):
                                self.kib = max(self.kib, int(line.split()[1]))
                except OSError:
                    continue

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def large(site, rounds):
    """A layer of 1,000,000 small files and one with a sparse file of 20 GiB."""
    del rounds
    image_of(site)
    site.fresh_disk()
    site.start_node()
    tar = site.path("million.tar")
    trees.many_files_tar(tar, 1000000)
    sparse = site.path("sparse")
    os.makedirs(sparse)
    trees.busybox(sparse)
    shell(f"truncate -s 20G {sparse}/big; echo end >> {sparse}/big; "
          f"tar --format=posix -S -C {sparse} -cf {sparse}.tar .")
    print("\n### Large layers\n\n| layer | pull and mount | memory of the converter | removal |\n"
          "|---|---:|---:|---:|")
    for label, source in (("1,000,000 files", tar), ("sparse file of 20 GiB", sparse + ".tar")):
        layout = site.path("large")
        layouts.make(layout, [(source, "zstd")])
        site.push(layout, "large")
        shell(f"rm -rf {layout} {source}")
        large_one(site, label)
    site.stop_node()


def large_one(site, label):
    name = f"{site.registry.host}/varve/large:1"
    with Peak() as peak:
        start = time.monotonic()
        shell(f"{site.varve} run create {name} --id large")
        wall = time.monotonic() - start
    shell(f"{site.varve} run rm large")
    start = time.monotonic()
    shell(f"{site.varve} image rm {name}")
    removal = time.monotonic() - start
    print(f"| {label} | {seconds(wall)} | {peak.kib >> 10} MiB | {seconds(removal)} |", flush=True)


def inflate(site, rounds):
    """Why gzip layers go through ISA-L: the packaged inflaters on one layer."""
    image = image_of(site)
    layer = site.path("layout-gzip", "blobs", "sha256",
                      image.layers["gzip"]["digest"].split(":")[1])
    group("Inflating a gzip layer", [
        Case("gzip -d", f"gzip -d < {layer} > /dev/null"),
        Case("pigz -d (zlib)", f"pigz -d < {layer} > /dev/null"),
        Case("libdeflate-gunzip (whole file in memory)",
             f"libdeflate-gunzip -c {layer}.gz > /dev/null",
             lambda: os.path.exists(layer + ".gz") or os.link(layer, layer + ".gz")),
        Case("igzip -d (ISA-L)", f"igzip -d < {layer} > /dev/null"),
    ], rounds, warm=1)
    if os.path.exists(layer + ".gz"):
        os.unlink(layer + ".gz")


def commit(site, rounds):
    """A snapshot of a run whose writable layer holds the whole tree, against a pipeline."""
    image = image_of(site)
    name = f"{site.registry.host}/varve/bench-zstd:1"
    site.fresh_disk()
    site.start_node()
    shell(f"{site.varve} run create {name} --id c")
    run = site.node.ok("run", "inspect", "c")
    shell(f"mkdir {run['rootfs']}/new && tar -C {run['rootfs']}/new --xattrs -xf {image.tar}")
    upper = os.path.join(site.node.data, "runs", "c", "upper")
    out = os.path.join(site.disk, "out")
    group("Commit of 20,000 new files, 420 MiB", [
        Case("tar, zstd -3 -T2", f"tar -C {upper} --xattrs -cf - . | zstd -q -3 -T2 > {out}; sync {out}"),
        Case("varve snapshot create", f"{site.varve} snapshot create --run c"),
    ], rounds)
    site.stop_node()


GROUPS = {"inflate": inflate, "cold": cold, "warm": warm, "read": read_all, "large": large,
          "commit": commit}
