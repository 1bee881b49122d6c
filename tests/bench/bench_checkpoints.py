"""Groups about checkpoints: of a workspace of 10 GiB to a docker-registry over loopback, and what is made of
them on a second node.

Nothing else does the same, so most tables have no peer; each row is of its own rounds, in turn with
the others. Times are the client's, from its start to its end, but for what the result itself tells.
"""
import os
import statistics
import time

import trees
from bench_volumes import FIO, fio_one, make_project, note
from measure import drop_caches, seconds, shell

MIB = 1 << 20
SIZE_GIB = 10
LAZY_GIB = 5
TREE_FILES = 10000


class Rows:
    """Walls by label, in the order in which the labels came."""

    def __init__(self):
        self.values = {}

    def add(self, label, value):
        self.values.setdefault(label, []).append(value)
        note(f"  {label}: {value:.4g}")

    def timed(self, label, function, *arguments):
        start = time.monotonic()
        result = function(*arguments)
        self.add(label, time.monotonic() - start)
        return result

    def show(self, title, text=seconds):
        print(f"\n### {title}\n\n| | n | median (min to max) |\n|---|---:|---:|")
        for label, values in self.values.items():
            print(f"| {label} | {len(values)} | {text(statistics.median(values))} "
                  f"({text(min(values))} to {text(max(values))}) |", flush=True)


def milliseconds(value):
    return f"{value:.1f} ms"


class Volume:
    """A workspace of a node with the registry as its remote."""

    def __init__(self, site, size_gib=SIZE_GIB):
        site.fresh_disk(direct=True)
        if not site.registry:
            site.start_registry()
        self.site, self.node = site, site.start_node()
        self.path = site.path("m-checkpoint")
        os.makedirs(self.path, exist_ok=True)
        self.node.ok("workspace", "create", "bench", "--size", f"{size_gib}G")
        self.node.ok("workspace", "mount", "bench", self.path)

    def checkpoint(self, *options):
        return self.node.ok("workspace", "checkpoint", "bench", *options)

    def close(self):
        self.node.ok("workspace", "unmount", "bench")
        self.site.stop_node()


def dirty(path, mebibytes, number):
    """New random bytes in a file that is there, not yet written back."""
    shell(f"head -c {mebibytes * MIB} /dev/urandom | dd of={path}/dirty{number % 3} bs=1M conv=notrunc status=none "
          "iflag=fullblock")


def checkpoint(site, rounds):
    """Checkpoints of little, of nothing, forks, and how long requests wait."""
    volume = Volume(site)
    try:
        trees.agent_tree(os.path.join(volume.path, "tree"), files=TREE_FILES, total=300 * MIB, seed=7)
        walls, parts, frozen = Rows(), Rows(), Rows()
        walls.timed("the first, 300 MiB in 10,000 files", volume.checkpoint)
        for number in range(rounds + 2):
            dirty(volume.path, 10, number)
            result = walls.timed("10 MiB dirty", volume.checkpoint)
            for part in ("sync", "cut", "store"):
                parts.add(part, result["ms"][part])
            walls.timed("nothing changed", volume.checkpoint)
            dirty(volume.path, 10, number)
            result = walls.timed("10 MiB dirty, frozen", volume.checkpoint, "--consistency", "freeze")
            for part in ("sync", "freeze", "frozen", "cut"):
                frozen.add(part, result["ms"][part])
            walls.timed("fork", volume.node.ok, "workspace", "fork", "bench", f"fork{number}", "--at",
                        str(result["generation"]))
        for number in range(rounds + 2):
            volume.node.ok("workspace", "rm", f"fork{number}")
        walls.show(f"Checkpoints of a workspace of {SIZE_GIB} GiB")
        parts.show("The parts of a checkpoint of 10 MiB, as its result tells", milliseconds)
        frozen.show("The same of one whose file system is frozen", milliseconds)
        stored(volume)
    finally:
        volume.close()


def small_files(path):
    for number in range(2000):
        with open(f"{path}/f{number}", "wb") as f:
            f.write(os.urandom(2048))
    return 2000 * 2048


def build(path):
    make_project(f"{path}/p", units=40)
    shell(f"make -s -C {path}/p")
    return int(shell(f"du -s --apparent-size -B1 {path}/p").split()[0])


def database(path):
    """Each insert a transaction of its own: 100 bytes of value, and what SQLite makes of it."""
    with open(f"{path}/script", "w", encoding="ascii") as f:
        f.write("PRAGMA journal_mode=WAL;\nCREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB);\n")
        f.write("INSERT INTO t(v) VALUES(randomblob(100));\n" * 2000)
    shell(f"sqlite3 {path}/t.db < {path}/script > /dev/null")
    return 2000 * 100


def stored(volume):
    """What a workload's bytes cost in the remote: as the registry's disk sees it, compressed."""
    print("\n### Stored bytes for each changed byte\n\n| | changed | stored | ratio |\n|---|---:|---:|---:|")
    for label, work in (("2,000 files of 2 KiB, random", small_files), ("C build, 41 files", build),
                        ("SQLite, 2,000 inserts of 100 bytes", database),
                        ("the same again, into the same database", database)):
        path = os.path.join(volume.path, work.__name__)
        os.makedirs(path, exist_ok=True)
        changed = work(path)
        new = volume.checkpoint()["bytes_new"]
        print(f"| {label} | {changed / MIB:.2f} MiB | {new / MIB:.2f} MiB | {new / changed:.2f} |", flush=True)


def lazy(site, rounds):
    """A workspace of 5 GiB on a node that has nothing of it: until the first `ls -R`, and reading."""
    volume = Volume(site, LAZY_GIB)
    rows = Rows()
    try:
        trees.agent_tree(os.path.join(volume.path, "tree"), files=TREE_FILES, total=300 * MIB, seed=7)
        shell(f"head -c {1024 * MIB} /dev/urandom > {volume.path}/random")
        reference = volume.checkpoint()["reference"]
    finally:
        volume.close()
    for number in range(rounds):
        node = site.scratch.node(f"lazy{number}", remote=site.registry.url,
                                 data=os.path.join(site.disk, f"lazy{number}")).start()
        point = site.path(f"m-lazy{number}")
        os.makedirs(point)
        drop_caches()
        start = time.monotonic()
        rows.timed("workspace create --from", node.ok, "workspace", "create", "l", "--from", reference)
        rows.timed("workspace mount", node.ok, "workspace", "mount", "l", point)
        rows.timed(f"ls -R of {TREE_FILES:,} files", shell, f"ls -R {point}/tree > /dev/null")
        rows.add("all three", time.monotonic() - start)
        rows.timed("reading 1 GiB of random bytes, cold", shell, f"cat {point}/random > /dev/null")
        rows.timed("reading the tree, cold", shell, f"tar -C {point}/tree -cf - . | cat > /dev/null")
        node.ok("workspace", "unmount", "l")
        node.stop()
    rows.show(f"A workspace of {LAZY_GIB} GiB on an empty node, caches cold")


def beside(site, rounds):
    """What the figures of a volume lose while a view of it is open, and while checkpoints are made."""
    volume = Volume(site)
    view = site.path("m-view")
    os.makedirs(view, exist_ok=True)
    try:
        shell(f"fio --name=t --filename={volume.path}/fio.dat --size=1G --rw=write --bs=1M --direct=1 "
              "--end_fsync=1 --output-format=json")
        volume.checkpoint()
        for title in ("sequential write, 1 MiB", "random write, 4 KiB, depth 1", "random read, 4 KiB, depth 1"):
            rates = {}
            for _ in range(rounds):
                for label, around in (("alone", alone), ("a view is open", viewed),
                                      ("checkpoints, one after the other", checkpointed)):
                    rates.setdefault(label, []).append(around(volume, view, FIO[title]))
                    note(f"  {title}, {label}: {rates[label][-1]:.0f}/s")
            print(f"\n### Beside other work: {title}\n\n| | n | operations/s | ratio of times |\n|---|---:|---:|---:|")
            for label, values in rates.items():
                ratio = statistics.median(a / b for a, b in zip(rates["alone"], values))
                print(f"| {label} | {len(values)} | {statistics.median(values):.0f} | {ratio:.2f} |", flush=True)
    finally:
        volume.close()


def alone(volume, _view, arguments):
    os.sync()
    return fio_one(volume.path, arguments)[0]


def viewed(volume, view, arguments):
    volume.node.ok("workspace", "mount", "bench@now", view)
    try:
        return alone(volume, view, arguments)
    finally:
        volume.node.ok("workspace", "unmount", view_name(volume))


def view_name(volume):
    names = [w["name"] for w in volume.node.ok("workspace", "ls")["workspaces"]]
    return next(name for name in names if name.startswith("bench@"))


def checkpointed(volume, _view, arguments):
    job = volume.site.scratch.popen(["bash", "-c", f"while {volume.site.varve} workspace checkpoint bench "
                                     "> /dev/null; do :; done"])
    try:
        return alone(volume, None, arguments)
    finally:
        job.terminate()
        job.wait()


GROUPS = {"checkpoint": checkpoint, "lazy": lazy, "beside": beside}
