"""Groups about volumes: a workspace against ext4 on a plain loop device and against the host's ext4.

All places lie on the same file system of the host, directly (no fresh disk below, which would be
one more loop device under each). The file systems are made with the same options and are as old as
each other; what a round made is moved aside before the next, as ext4 creates slowly where much was
just deleted, and removed where removal is measured.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

import trees
from measure import Case, drop_caches, group, seconds, shell

SIZE_GIB = 12
FEATURES = ("none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,"
            "sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum,"
            "metadata_csum_seed")
MKE2FS = (f"mke2fs -q -t ext4 -b 4096 -I 256 -i 8192 -m 0 -J size=64 -O {FEATURES} "
          "-E assume_storage_prezeroed=1,lazy_itable_init=0,lazy_journal_init=0,nodiscard")
FILES = 81000
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def note(text):
    print(text, file=sys.stderr, flush=True)


class Places:
    """Where the same work is done: label -> directory. The first one is what others are compared
    with."""

    def __init__(self, site, names):
        self.site = site
        self.devices = []
        self.node = site.scratch.node("volumes", data=site.path("volumes-data"))
        self.node.start()
        self.directory = {}
        try:
            for name in names:
                self.directory[name] = getattr(self, "make_" + name)()
        except BaseException:
            self.close()
            raise

    LABELS = {"direct": "ext4 on a loop device, direct I/O",
              "cached": "ext4 on a loop device as losetup makes it",
              "volume": "varve workspace", "host": "the host's ext4"}

    def make_loop(self, name, options):
        image, point = self.site.path(name + ".img"), self.site.path("m-" + name)
        shell(f"truncate -s {SIZE_GIB}G {image}; {MKE2FS} {image}; mkdir -p {point}")
        device = shell(f"losetup -f --show {options} {image}").strip()
        self.devices.append((device, point))
        shell(f"mount -o noatime,nosuid,nodev {device} {point}")
        return point

    def make_direct(self):
        return self.make_loop("direct", "-b 4096 --direct-io=on")

    def make_cached(self):
        return self.make_loop("cached", "-b 4096")

    def make_volume(self):
        point = self.site.path("m-volume")
        os.makedirs(point, exist_ok=True)
        self.node.ok("workspace", "create", "bench", "--size", f"{SIZE_GIB}G")
        self.node.ok("workspace", "mount", "bench", point)
        return point

    def make_host(self):
        point = self.site.path("m-host")
        os.makedirs(point, exist_ok=True)
        return point

    def cases(self, command, prepare="", cold=False):
        """One case for each place; {m} is its directory."""
        return [Case(self.LABELS[name], command.format(m=point),
                     (lambda text=prepare.format(m=point): shell(text)) if prepare else None, cold)
                for name, point in self.directory.items()]

    def close(self):
        if "volume" in self.directory:
            self.node.ok("workspace", "unmount", "bench")
            self.node.ok("workspace", "rm", "bench")
        for device, point in self.devices:
            subprocess.run(["umount", point], check=False)
            subprocess.run(["losetup", "-d", device], check=False)
        self.node.stop()
        for name in self.directory:
            image = self.site.path(name + ".img")
            if os.path.exists(image):
                os.unlink(image)
        shutil.rmtree(self.site.path("m-host"), ignore_errors=True)


def places_of(site, names=("direct", "cached", "volume", "host")):
    return Places(site, names)


def aside(name):
    return f"if [ -e {{m}}/{name} ]; then mv {{m}}/{name} {{m}}/{name}.$RANDOM$RANDOM; fi"


class Inputs:
    """A tree of 81,000 files and its tar, a bare git repository of a part, a C project."""

    def __init__(self, site):
        self.tree, self.tar = site.path("v-tree"), site.path("v-tree.tar")
        self.repository, self.project = site.path("v-repo.git"), site.path("v-project")
        note("making the tree, the repository and the project")
        trees.agent_tree(self.tree, files=FILES, total=700 << 20, seed=4)
        shell(f"tar -C {self.tree}/opt -cf {self.tar} .")
        source = site.path("v-repo")
        shell(f"mkdir {source}; cd {self.tree}/opt; find . -type f | sort | head -n 20000 | "
              f"tar -T - -cf - | tar -C {source} -xf -; cd {source}; git init -q -b main .; "
              "git add -A; git -c user.name=a -c user.email=a@example.org commit -q -m seed; "
              f"git clone -q --bare . {self.repository}; git -C {self.repository} gc -q; "
              f"rm -rf {source}")
        make_project(self.project)
        shell(f"cat {self.tar} > /dev/null; "
              f"find {self.tree} {self.repository} -type f -print0 | xargs -0 cat > /dev/null")


def make_project(path, units=80):
    os.makedirs(path)
    for number in range(units):
        with open(os.path.join(path, f"u{number}.c"), "w", encoding="ascii") as f:
            f.write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
            for function in range(40):
                f.write(f"int f{number}_{function}(int a)\n{{\n    char text[64];\n"
                        f"    snprintf(text, sizeof text, \"%d\", a + {function});\n"
                        f"    return (int)strlen(text) + atoi(text);\n}}\n")
    with open(os.path.join(path, "main.c"), "w", encoding="ascii") as f:
        f.write("int f0_0(int);\nint main(void)\n{\n    return f0_0(1) < 0;\n}\n")
    with open(os.path.join(path, "Makefile"), "w", encoding="ascii") as f:
        f.write("objects := $(patsubst %.c,%.o,$(wildcard *.c))\n"
                "program: $(objects)\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n")


def workloads(site, rounds):
    """What agents and builds do all day."""
    inputs = Inputs(site)
    places = places_of(site)
    try:
        def step(title, command, prepare="", cold=False, warm=0, times=rounds):
            group(title, places.cases(command, prepare, cold), times, warm)

        step(f"Unpack {FILES:,} files", f"mkdir {{m}}/x; tar -xf {inputs.tar} -C {{m}}/x",
             aside("x"))
        step(f"Unpack {FILES:,} files and sync",
             f"mkdir {{m}}/x; tar -xf {inputs.tar} -C {{m}}/x; sync -f {{m}}", aside("x"))
        step("find, warm", "find {m}/x -printf '%s' > /dev/null", warm=1, times=rounds + 2)
        step("find, cold", "find {m}/x -printf '%s' > /dev/null", cold=True)
        step("Read all files, cold", "tar -C {m}/x -cf - . | cat > /dev/null", cold=True)
        step("cp -a of the tree", f"cp -a {inputs.tree}/opt {{m}}/z", aside("z"))
        step("git clone, 20,000 files", f"git clone -q {inputs.repository} {{m}}/c", aside("c"))
        step("git status, warm", "git -C {m}/c status -s > /dev/null", warm=1, times=rounds + 2)
        step("git status, cold", "git -C {m}/c status -s > /dev/null", cold=True)
        step("C build, 81 files, make -j2",
             f"cp -r {inputs.project} {{m}}/b; make -s -j2 -C {{m}}/b", aside("b"))
        step("rm -rf of the tree", "rm -rf {m}/z",
             "[ -e {m}/z ] || mv $(ls -d {m}/z.* | head -1) {m}/z")
    finally:
        places.close()


def sqlite_script(journal, synchronous, path):
    """Point inserts, each a transaction of its own; fewer where each waits for the disk."""
    waits = synchronous in ("FULL", "EXTRA") or (journal == "DELETE" and synchronous == "NORMAL")
    count = 1500 if waits else 15000
    with open(path, "w", encoding="ascii") as f:
        f.write(f"PRAGMA journal_mode={journal};\nPRAGMA synchronous={synchronous};\n"
                "CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v BLOB);\n")
        for number in range(count):
            f.write(f"INSERT INTO t(k,v) VALUES('key{number}',randomblob(100));\n")
    return count


def sqlite(site, rounds):
    """Autocommitted inserts in both journal modes at each level of synchronous."""
    places = places_of(site)
    try:
        for journal in ("WAL", "DELETE"):
            for synchronous in SYNCHRONOUS:
                script = site.path(f"{journal}-{synchronous}.sql")
                count = sqlite_script(journal, synchronous, script)
                group(f"SQLite, {journal}, synchronous={synchronous}, {count} inserts",
                      places.cases(f"sqlite3 {{m}}/t.db < {script} > /dev/null",
                                   "rm -f {m}/t.db*"), rounds)
    finally:
        places.close()


FIO = {"sequential write, 1 MiB": "--rw=write --bs=1M --iodepth=1",
       "sequential read, 1 MiB": "--rw=read --bs=1M --iodepth=1",
       "random write, 4 KiB, depth 1": "--rw=randwrite --bs=4k --iodepth=1",
       "random read, 4 KiB, depth 1": "--rw=randread --bs=4k --iodepth=1",
       "random write, 4 KiB, depth 16": "--rw=randwrite --bs=4k --iodepth=16",
       "random read, 4 KiB, depth 16": "--rw=randread --bs=4k --iodepth=16"}


def fio_one(point, arguments):
    """Operations per second and microseconds of processor time of the host for each."""
    before = busy_ticks()
    text = shell(f"fio --name=t --filename={point}/fio.dat --size=1G --direct=1 --ioengine=libaio "
                 f"--time_based --runtime=4 --output-format=json {arguments}")
    ticks = busy_ticks() - before
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["write"] if job["write"]["total_ios"] else job["read"]
    return side["iops"], ticks / os.sysconf("SC_CLK_TCK") * 1e6 / max(1, side["total_ios"])


def busy_ticks():
    with open("/proc/stat", encoding="ascii") as f:
        fields = [int(field) for field in f.readline().split()[1:]]
    return sum(fields[:3]) + sum(fields[5:8])


def fio(site, rounds):
    """Direct I/O by fio; a ratio is that of times, so above 1 is slower."""
    places = places_of(site)
    try:
        for point in places.directory.values():
            shell(f"fio --name=t --filename={point}/fio.dat --size=1G --rw=write --bs=1M "
                  "--direct=1 --end_fsync=1 --output-format=json")
        for title, arguments in FIO.items():
            rates = {name: [] for name in places.directory}
            costs = {name: [] for name in places.directory}
            for _ in range(rounds):
                for name, point in places.directory.items():
                    os.sync()
                    rate, cost = fio_one(point, arguments)
                    rates[name].append(rate)
                    costs[name].append(cost)
                    note(f"  {title}: {name} {rate:.0f}/s")
            print_rates(title, places, rates, costs)
    finally:
        places.close()


def print_rates(title, places, rates, costs):
    print(f"\n### fio, direct I/O: {title}\n\n| place | n | operations/s | processor | ratio |\n"
          "|---|---:|---:|---:|---:|")
    first = next(iter(rates.values()))
    for name, values in rates.items():
        ratio = statistics.median(base / value for value, base in zip(values, first))
        print(f"| {places.LABELS[name]} | {len(values)} | {statistics.median(values):.0f} | "
              f"{statistics.median(costs[name]):.0f} us | {ratio:.2f} |", flush=True)


def attach(site, rounds, count=50):
    """Times of the verbs on an empty volume, many volumes at once, and what a worker locks."""
    node = site.scratch.node("attach", data=site.path("attach-data"))
    node.start()
    points = []
    try:
        walls = {"create": [], "mount": [], "unmount": [], "rm": []}
        for number in range(rounds + 2):
            point = site.path("attach-point")
            os.makedirs(point, exist_ok=True)
            for verb, arguments in (("create", ()), ("mount", (point,)), ("unmount", ()),
                                    ("rm", ())):
                start = time.monotonic()
                node.ok("workspace", verb, f"w{number}", *arguments)
                walls[verb].append(time.monotonic() - start)
        print("\n### An empty volume of 10 GiB\n\n| verb | n | wall (min to max) |\n|---|---:|---:|")
        for verb, values in walls.items():
            print(f"| workspace {verb} | {len(values)} | {seconds(statistics.median(values))} "
                  f"({seconds(min(values))} to {seconds(max(values))}) |", flush=True)
        many(site, node, points, count)
    finally:
        for number, _ in enumerate(points):
            node.call("workspace", "unmount", f"m{number}")
            node.call("workspace", "rm", f"m{number}")
        node.stop()


def many(site, node, points, count):
    failed = []
    for number in range(count):
        points.append(site.path(f"many-{number}"))
        os.makedirs(points[-1])
        node.ok("workspace", "create", f"m{number}", "--size", "1G")

    def mount(number):
        if node.call("workspace", "mount", f"m{number}", points[number]).status != 0:
            failed.append(number)

    start = time.monotonic()
    threads = [threading.Thread(target=mount, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.monotonic() - start
    locked = [node.ok("workspace", "inspect", f"m{number}")["worker"]["locked_bytes"]
              for number in range(count)]
    print(f"\n{count} volumes attached and mounted at once: {seconds(wall)}, {len(failed)} failed; "
          f"a worker locks {max(locked) / (1 << 20):.1f} MiB", flush=True)


def caches(site, _rounds, mebibytes=1024):
    """How much memory one file that was read costs: one page cache or two."""
    places = places_of(site, ("direct", "cached", "volume"))
    print(f"\n### Page cache after reading {mebibytes} MiB\n\n| place | grown by |\n|---|---:|")
    try:
        for name, point in places.directory.items():
            shell(f"head -c {mebibytes}M /dev/urandom > {point}/big; sync -f {point}")
            drop_caches()
            before = cached_kib()
            shell(f"cat {point}/big > /dev/null")
            print(f"| {places.LABELS[name]} | {(cached_kib() - before) / 1024:.0f} MiB |",
                  flush=True)
    finally:
        places.close()


def cached_kib():
    with open("/proc/meminfo", encoding="ascii") as f:
        values = dict(line.split(":") for line in f)
    return int(values["Cached"].split()[0]) + int(values["Buffers"].split()[0])


GROUPS = {"workloads": workloads, "sqlite": sqlite, "fio": fio, "attach": attach, "caches": caches}
