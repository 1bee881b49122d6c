#!/usr/bin/env python3
"""What is restored is what was there: real trees against GNU tar, a coding job that moves to another
node, many layers, many files, huge sparse files."""
import glob
import os
import subprocess
import sys

import harness
from harness import LONG, check, check_equal, run

sys.path.insert(0, harness.SUPPORT)
import layouts  # noqa: E402  pylint: disable=wrong-import-position
import treecmp  # noqa: E402  pylint: disable=wrong-import-position


def python_environment():
    """The modules of Debian's Python packages, or the standard library where there are none."""
    debian = "/usr/lib/python3"
    return debian if os.path.isdir(debian) else os.path.dirname(os.__file__)


def node_project():
    """A tree of Node modules: those of npm, or of Debian's packages."""
    for path in [*glob.glob("/usr/lib/node_modules"), *glob.glob("/usr/share/nodejs"),
                 *glob.glob("/usr/local/lib/node_modules")]:
        if len(os.listdir(path)) > 0:
            return path
    raise harness.Failed("no Node modules on this machine (package node-lodash)")


def create(node, scratch, layers, run_id, config=None):
    """Imports an image of these layers and makes a run of it; gives the root filesystem."""
    layout = scratch.path("layout-" + run_id)
    layouts.make(layout, layers, config=config)
    node.ok("image", "import", layout, "--name", f"{run_id}:1")
    return node.ok("run", "create", f"{run_id}:1", "--id", run_id)["rootfs"]


def differences(left, right):
    return treecmp.differences(treecmp.listing(left), treecmp.listing(right))[:10]


def test_real_trees_are_what_gnu_tar_unpacks(scratch):
    node = scratch.node().start()
    trees = {"python": python_environment(), "node": node_project()}
    tars = {"debian": harness.rootfs_tar()}
    for name, path in trees.items():
        tars[name] = scratch.path(name + ".tar")
        run(["tar", "--format=posix", "--xattrs", "--numeric-owner", "-C", path, "-cf",
             tars[name], "."])
    for number, (name, tar) in enumerate(tars.items()):
        packing = ("zstd", "gzip", "tar")[number % 3]
        rootfs = create(node, scratch, [(tar, packing)], name)
        plain = scratch.path("plain-" + name)
        os.mkdir(plain)
        run(["tar", "-C", plain, "--xattrs", "--xattrs-include=*", "--numeric-owner",
             "--delay-directory-restore", "-xpf", tar])
        check_equal(differences(plain, rootfs), [], f"differences of {name} to what tar unpacks")


SOURCES = r"""
set -eu
mkdir -p src tests build
for i in $(seq 1 30); do
    printf '#include "all.h"\nint f%d(int x) { return x * %d + 1; }\n' $i $i > src/f$i.c
done
(echo '#pragma once'; for i in $(seq 1 30); do echo "int f$i(int);"; done) > src/all.h
printf '#include "../src/all.h"\n#include <stdio.h>\nint main(void) {\n' > tests/test.c
for i in $(seq 1 30); do echo "if (f$i(2) != 2 * $i + 1) return 1;" >> tests/test.c; done
printf 'puts("30 passed"); return 0; }\n' >> tests/test.c
cat > Makefile <<'EOF'
OBJ := $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))
build/test: tests/test.c build/libf.a
	gcc -o $@ $^
build/libf.a: $(OBJ)
	ar rcs $@ $^
build/%.o: src/%.c src/all.h
	mkdir -p build
	gcc -O1 -c -o $@ $<
check: build/test
	./build/test
EOF
echo build/ > .gitignore
"""

GIT = ("git -c user.name=agent -c user.email=agent@example.org "
       "-c init.defaultBranch=main -c commit.gpgsign=false")


def project_bundle(scratch):
    """A small C project with a history, as one file that `git clone` takes."""
    path = scratch.path("project")
    os.mkdir(path)
    run(["bash", "-c", f"{SOURCES}\n{GIT} init -q . && {GIT} add . && {GIT} commit -qm first && "
         f"sed -i s/passed/good/ tests/test.c && {GIT} commit -qam second && "
         f"{GIT} bundle create -q ../project.bundle main"], cwd=path)
    return scratch.path("project.bundle")


JOB = r"""
set -e
trap 'tail -5 /root/log' EXIT
cat > /root/project.bundle
git clone -q -b main /root/project.bundle /root/project
cd /root/project
make -s check > /root/log 2>&1
printf 'int g(void) { return 3; }\n' > src/g.c
git -c user.name=agent -c user.email=agent@example.org commit -q --allow-empty -m "work in a sandbox"
git add src/g.c
make -s check >> /root/log 2>&1
git stash list > /dev/null
"""


def test_a_coding_job_moves_to_another_node(scratch):
    rootfs = scratch.path("tools.tar")
    run([sys.executable, os.path.join(harness.SUPPORT, "debian_rootfs.py"), rootfs,
         "git", "gcc", "make", "libc6-dev"])
    registry = scratch.registry()
    first = scratch.node("n1", remote=registry.url).start()
    first.ok("image", "import", rootfs, "--name", "tools:1")
    first.ok("run", "create", "tools:1", "--id", "job")
    with open(project_bundle(scratch), "rb") as bundle:
        reply = first.call("run", "exec", "job", "--", "sh", "-c", JOB, stdin=bundle)
    check_equal(reply.status, 0, f"status of the job ({reply.out}{reply.err})")
    check("30 good" in first.exec("job", "cat", "/root/log"), "the project's tests did not run")
    status = first.exec("job", "git", "-C", "/root/project", "status", "--porcelain=v2", "--branch")
    snapshot = first.ok("snapshot", "create", "--run", "job", "--name", "work:1")
    first.ok("snapshot", "push", snapshot["id"])

    second = scratch.node("n2", remote=registry.url).start()
    second.ok("run", "create", snapshot["image"], "--id", "job")
    check_equal(second.exec("job", "git", "-C", "/root/project", "status", "--porcelain=v2",
                            "--branch"), status, "git status after the move")
    # Without looking at the content of a single file: git trusts times and inode data less, so a
    # refresh may be needed; make goes by times alone.
    check_equal(second.exec("job", "make", "-C", "/root/project", "-q", "build/test"), "",
                "make finds something to rebuild")
    check_equal(second.exec("job", "git", "-C", "/root/project", "fsck", "--strict"), "",
                "git fsck")
    again = second.exec("job", "make", "-s", "-C", "/root/project", "check")
    check("30 good" in again, "the tests do not run after the move")


def layer_tar(scratch, name, script, *options):
    """A layer made by a shell script in an empty directory, packed by GNU tar."""
    path = scratch.path(name)
    os.mkdir(path)
    run(["bash", "-ec", script], cwd=path)
    run(["tar", "--xattrs", "--numeric-owner", *options, "-C", path, "-cf", path + ".tar", "."])
    return path + ".tar"


def test_a_hundred_and_twenty_seven_layers(scratch):
    node = scratch.node().start()
    layers = [(layer_tar(scratch, f"l{n}",
                         f"echo {n} > f{n}; echo {n} > top; mkdir -p d/{n % 7}; "
                         f"echo {n} > d/{n % 7}/x{n}"), "gzip" if n % 2 else "zstd")
              for n in range(127)]
    rootfs = create(node, scratch, layers, "deep")
    with open(os.path.join(rootfs, "top"), encoding="ascii") as f:
        check_equal(f.read(), "126\n", "the newest layer wins")
    check_equal(len(glob.glob(rootfs + "/f*")), 127, "files of all layers")
    check_equal(len(glob.glob(rootfs + "/d/*/x*")), 127, "files in shared directories")
    node.ok("run", "rm", "deep")
    check_equal([p for p in scratch.mounts() if "/layers/" in p], [], "layers left mounted")


def test_a_huge_sparse_file_costs_nothing(scratch):
    node = scratch.node().start()
    tar = layer_tar(scratch, "sparse", "truncate -s 20G big; printf start | dd of=big conv=notrunc "
                    "status=none; printf end | dd of=big bs=1 seek=15000000000 conv=notrunc "
                    "status=none", "--format=posix", "-S")
    rootfs = create(node, scratch, [(tar, "zstd")], "sparse")
    path = os.path.join(rootfs, "big")
    check_equal(os.stat(path).st_size, 20 << 30, "its size")
    with open(path, "rb") as f:
        check_equal(f.read(5), b"start", "its beginning")
        f.seek(15000000000)
        check_equal(f.read(4), b"end\0", "its middle")
        f.seek(-1, os.SEEK_END)
        check_equal(f.read(), b"\0", "its end")
    layers = glob.glob(os.path.join(node.data, "layers", "*"))
    check_equal(len(layers), 1, "layer images")
    check(os.stat(layers[0]).st_blocks * 512 < 8 << 20, "the image takes too much of the disk")


def test_many_small_files(scratch):
    count = 1000000 if LONG else 50000
    tar = scratch.path("many.tar")
    script = ("import io,sys,tarfile\n"
              "t = tarfile.open(sys.argv[1], 'w', format=tarfile.USTAR_FORMAT)\n"
              "for n in range(int(sys.argv[2])):\n"
              "    i = tarfile.TarInfo(f'd{n // 1000}/f{n}'); b = b'%d' % n; i.size = len(b)\n"
              "    t.addfile(i, io.BytesIO(b))\n"
              "t.close()\n")
    run([sys.executable, "-c", script, tar, str(count)])
    node = scratch.node().start()
    rootfs = create(node, scratch, [(tar, "zstd")], "many")
    for n in (0, 999, 1000, count // 2, count - 1):
        with open(f"{rootfs}/d{n // 1000}/f{n}", encoding="ascii") as f:
            check_equal(f.read(), str(n), f"content of file {n}")
    names = subprocess.run(["find", rootfs, "-type", "f", "-printf", "x"], check=True,
                           capture_output=True).stdout
    check_equal(len(names), count, "number of files")
    node.ok("run", "rm", "many")
    node.ok("image", "rm", "many:1")
    check_equal(glob.glob(os.path.join(node.data, "layers", "*")), [], "layer images left")


if __name__ == "__main__":
    harness.main(globals())
