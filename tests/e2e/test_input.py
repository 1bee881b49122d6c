#!/usr/bin/env python3
"""Bad input: one clear line, the documented status, nothing half-made left, nothing lost."""
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import harness
from harness import check, check_equal, run, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position


def small_tar(scratch, name="small.tar", packing=""):
    tree = scratch.path("small-tree")
    os.makedirs(f"{tree}/bin", exist_ok=True)
    with open(f"{tree}/bin/data", "wb") as f:
        f.write(os.urandom(300000))
    run(["tar", "-C", tree, f"-c{packing}f", scratch.path(name), "."])
    return scratch.path(name)


def layout_of(scratch, name="layout"):
    """An OCI layout with one image, made by stock tools, for damaging."""
    path = scratch.path(name)
    if not os.path.exists(scratch.path("source-bundle")):
        run(["umoci", "init", "--layout", path])
        run(["umoci", "new", "--image", f"{path}:v1"])
        run(["umoci", "unpack", "--image", f"{path}:v1", scratch.path("source-bundle")])
        with open(scratch.path("source-bundle", "rootfs", "file"), "wb") as f:
            f.write(os.urandom(200000))
        run(["umoci", "repack", "--image", f"{path}:v1", scratch.path("source-bundle")])
        run(["umoci", "gc", "--layout", path])
    return path


def manifest_of(layout):
    with open(f"{layout}/index.json", encoding="utf-8") as f:
        digest = json.load(f)["manifests"][0]["digest"]
    with open(blob(layout, digest), encoding="utf-8") as f:
        return digest, json.load(f)


def blob(layout, digest):
    return f"{layout}/blobs/sha256/{digest.split(':')[1]}"


def test_malformed_references(scratch):
    node = scratch.node("n1").start()
    for reference in ("UPPER/n", "n:", "a//b", "n@sha256:12", "n:-x", "a/../b", "n m", "", "@",
                      "a" * 300):
        for verb in (("image", "pull"), ("run", "create")):
            reply = node.call(*verb, reference)
            check_equal(reply.status, 2, f"status of {verb} '{reference[:40]}' ({reply.err})")
            check_equal(reply.err.count("\n"), 1, f"lines for '{reference[:40]}' ({reply.err})")
    node.fails(2, "image", "pull", "n:t@sha512:" + "0" * 128, says=["sha256"])
    node.fails(2, "image", "import", small_tar(scratch), "--name", "Bad Name", says=["Bad Name"])
    node.fails(2, "run", "create", "x", "--id", "../../etc", says=["../../etc"])
    check_agreement(node)


def test_truncated_and_damaged_archives(scratch):
    node = scratch.node("n1").start()
    whole = small_tar(scratch)
    for packing, name in (("", "t.tar"), ("z", "t.tar.gz"), ("J", "t.tar.xz")):
        path = small_tar(scratch, name, packing)
        size = os.path.getsize(path)
        for cut in (1, 700, size // 2, size - 20000 if not packing else size - 30):
            with open(path, "rb") as source, open(scratch.path("cut"), "wb") as target:
                target.write(source.read(cut))
            reply = node.call("image", "import", scratch.path("cut"), "--name", "cut:1")
            check(reply.status in (1, 2), f"{name} cut at {cut}: status {reply.status} {reply.err}")
            check_equal(reply.err.count("\n"), 1, f"lines ({reply.err})")
    with open(scratch.path("junk"), "wb") as f:
        f.write(os.urandom(100000))
    with open(scratch.path("text"), "w", encoding="utf-8") as f:
        f.write("This is no archive at all.\n" * 300)
    node.fails(1, "image", "import", scratch.path("text"), "--name", "t:1", says=["no tar"])
    for path in (scratch.path("junk"), "/dev/null"):
        reply = node.call("image", "import", path, "--name", "junk:1")
        check(reply.status in (1, 2), f"{path}: status {reply.status} {reply.err}")
    check_equal(node.ok("image", "ls"), {"images": []}, "images after failures")
    check_agreement(node)
    check_equal(node.ok("image", "import", whole, "--name", "cut:1")["names"], ["cut:1"],
                "a good import under the same name afterwards")
    check_agreement(node)


def test_digests_that_do_not_match(scratch):
    node = scratch.node("n1").start()
    good = layout_of(scratch)
    _, manifest = manifest_of(good)
    for number, digest in enumerate([manifest["config"]["digest"],
                                     manifest["layers"][0]["digest"]]):
        bad = scratch.path(f"bad{number}")
        shutil.copytree(good, bad)
        os.chmod(blob(bad, digest), 0o644)
        with open(blob(bad, digest), "r+b") as f:
            f.seek(10)
            byte = f.read(1)
            f.seek(10)
            f.write(bytes([byte[0] ^ 1]))
        node.fails(1, "image", "import", bad, "--name", "bad:1", says=["digest"])
        os.unlink(blob(bad, digest))
        reply = node.call("image", "import", bad, "--name", "bad:1")
        check(reply.status != 0 and digest[:15] in reply.err, f"missing blob: {reply.err}")
    check_equal(node.ok("image", "ls"), {"images": []}, "images after failures")
    check_agreement(node)


def wrong_diff_id(layout):
    """Rewrites the layout's config so that its diff ID is another layer's."""
    digest, manifest = manifest_of(layout)
    with open(blob(layout, manifest["config"]["digest"]), encoding="utf-8") as f:
        config = json.load(f)
    config["rootfs"]["diff_ids"][-1] = "sha256:" + "1" * 64
    manifest["config"].update(put(layout, config))
    described = put(layout, manifest)
    with open(f"{layout}/index.json", encoding="utf-8") as f:
        index = json.load(f)
    index["manifests"][0].update(described)
    with open(f"{layout}/index.json", "w", encoding="utf-8") as f:
        json.dump(index, f)
    return digest


def put(layout, document):
    data = json.dumps(document).encode()
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    with open(blob(layout, digest), "wb") as f:
        f.write(data)
    return {"digest": digest, "size": len(data)}


def test_wrong_diff_id_never_becomes_a_run(scratch):
    node = scratch.node("n1").start()
    layout = layout_of(scratch)
    wrong_diff_id(layout)
    if node.call("image", "import", layout, "--name", "lie:1").status == 0:
        node.fails(1, "run", "create", "lie:1", says=["digest"])
    check_equal(node.ok("run", "ls"), {"runs": []}, "runs after the failure")
    check_equal(os.listdir(os.path.join(node.data, "layers")), [], "layers after the failure")
    check_agreement(node)


def test_full_disk(scratch):
    for size in ("3m", "20m", "40m", "70m"):
        place = scratch.tmpfs(f"disk{size}", size)
        node = scratch.node(f"n{size}", data=os.path.join(place, "data")).start()
        reply = node.call("image", "import", harness.rootfs_tar(), "--name", "debian:12")
        if reply.status == 0:
            reply = node.call("run", "create", "debian:12", "--id", "r")
        check_equal(reply.status, 1, f"status on {size} ({reply.err})")
        check_equal(reply.err.count("\n"), 1, f"lines ({reply.err})")
        check("space" in reply.err, f"the cause on {size}: {reply.err}")
        check_agreement(node)
        node.ok("image", "import", small_tar(scratch), "--name", "small:1")
        node.stop()


def test_missing_things(scratch):
    node = scratch.node("n1").start()
    node.fails(3, "run", "create", "none:1", says=["none"])
    node.fails(3, "image", "pull", "none:1", says=["none"])
    node.fails(3, "image", "inspect", "none:1", says=["none:1"])
    node.fails(3, "image", "rm", "none:1", says=["none:1"])
    node.fails(3, "image", "import", "/no/such/file", "--name", "x:1", says=["/no/such/file"])
    node.fails(3, "run", "inspect", "none", says=["none"])
    node.fails(3, "run", "rm", "none", says=["none"])
    node.fails(3, "snapshot", "create", "--run", "none", says=["none"])
    node.fails(3, "snapshot", "inspect", "s-none", says=["s-none"])
    node.fails(3, "snapshot", "push", "s-none", says=["s-none"])
    node.fails(3, "job", "show", "j-none", says=["j-none"])
    check_agreement(node)


def test_names_that_exist(scratch):
    node = scratch.node("n1").start()
    first = small_tar(scratch)
    made = node.ok("image", "import", first, "--name", "a:1")
    second = scratch.path("other.tar")
    run(["tar", "-C", scratch.path("small-tree"), "-cf", second, "bin"])
    node.fails(4, "image", "import", second, "--name", "a:1", says=["a:1"])
    check_equal(node.ok("image", "inspect", "a:1")["digest"], made["digest"], "a:1 afterwards")
    check_equal(node.ok("image", "import", first, "--name", "a:1")["digest"], made["digest"],
                "the same import again")
    node.ok("image", "import", second, "--name", "b:1")
    node.ok("run", "create", "a:1", "--id", "r")
    node.fails(4, "run", "create", "b:1", "--id", "r", says=["r"])
    node.fails(4, "image", "rm", "a:1", says=["r"])
    node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    node.fails(4, "snapshot", "create", "--run", "r", "--name", "a:1", says=["a:1"])
    check_agreement(node)


def test_the_only_copy_is_not_dropped(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", small_tar(scratch), "--name", "a:1")
    node.ok("run", "create", "a:1", "--id", "r")
    snapshot = node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    node.fails(4, "image", "rm", "s:1", says=["snapshot"])
    node.ok("snapshot", "rm", snapshot["id"])
    node.fails(3, "snapshot", "inspect", snapshot["id"], says=[snapshot["id"]])
    check_agreement(node)


def test_unreachable_registry(scratch):
    port = harness.free_port()
    node = scratch.node("n1", remote=f"http://127.0.0.1:{port}/varve").start()
    node.ok("image", "import", small_tar(scratch), "--name", "a:1")
    node.ok("run", "create", "a:1", "--id", "r")
    snapshot = node.ok("snapshot", "create", "--run", "r")
    node.fails(1, "snapshot", "push", snapshot["id"], says=[f"127.0.0.1:{port}"])
    check_equal(node.ok("snapshot", "inspect", snapshot["id"])["durability"], "local",
                "durability after the failed push")
    node.fails(1, "image", "pull", f"127.0.0.1:{port}/x:1", says=[f"127.0.0.1:{port}"])
    check_agreement(node)


def test_no_daemon(scratch):
    node = scratch.node("n1")
    node.fails(5, "image", "ls", says=[node.socket])
    node.fails(5, "run", "create", "x", says=[node.socket])


def test_second_daemon(scratch):
    node = scratch.node("n1").start()
    os.symlink(node.data, scratch.path("same-data"))
    for data, run_dir in ((node.data, scratch.path("other-run")),
                          (scratch.path("same-data"), scratch.path("other-run")),
                          (scratch.path("other-data"), node.run_dir)):
        result = subprocess.run([harness.VARVED, "--data", data, "--run-dir", run_dir,
                                 "--allow-other-mount-namespace"], capture_output=True, text=True,
                                timeout=60, check=False)
        check_equal(result.returncode, 1, f"status of a second daemon ({result.stderr})")
        lines = [x for x in result.stderr.split("\n") if x.startswith("varved: ")]
        check_equal(len(lines), 1, f"lines of a second daemon ({result.stderr})")
        check("varved" in lines[0] and ("use" in lines[0] or "lock" in lines[0]), lines[0])
    check_equal(node.ok("run", "ls"), {"runs": []}, "the first daemon goes on")
    node.kill()
    node.start()
    check_equal(node.ok("run", "ls"), {"runs": []}, "a start after kill -9 needs no help")


def test_daemon_that_cannot_start(scratch):
    os.makedirs(scratch.path("used"))
    with open(scratch.path("used", "file"), "w", encoding="utf-8") as f:
        f.write("somebody's")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    os.chmod(scratch.root, 0o755)
    varved = shutil.copy(harness.VARVED, scratch.path("varved"))  # where nobody may go
    for prefix, data, word in (([], scratch.path("no", "parent"), "lies in"),
                               ([], scratch.path("used"), "used"),
                               (nobody, scratch.path("data"), "root")):
        result = subprocess.run([*prefix, varved, "--data", data, "--run-dir",
                                 scratch.path("run"), "--allow-other-mount-namespace"],
                                capture_output=True, text=True, timeout=60, check=False)
        check(result.returncode in (1, 2), f"status with {data}: {result.stderr}")
        check_equal(result.stderr.count("\n"), 1, f"lines with {data} ({result.stderr})")
        check(word in result.stderr, f"with {data}: {result.stderr}")
    check(not os.path.exists(scratch.path("data")), "something was made")
    check_equal(os.listdir(scratch.path("used")), ["file"], "a directory that is not ours")


def core_limit(pid):
    with open(f"/proc/{pid}/limits", encoding="utf-8") as f:
        return next(line.split()[4:6] for line in f if line.startswith("Max core file size"))


def test_a_crash_leaves_no_memory(scratch):
    """Passwords are in it. A switch says otherwise, for who looks for a fault."""
    node = scratch.node("n1")
    environment = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":disable_coredump=0")
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    most = "unlimited" if most == resource.RLIM_INFINITY else str(most)
    for flags, limits in (([], ["0", "0"]), (["--allow-core-dumps"], [most] * 2)):
        with open(node.log, "ab") as log:
            node.process = subprocess.Popen(["sh", "-c", 'ulimit -S -c $(ulimit -H -c); exec "$@"', "varved", *node.args(), *flags], cwd=scratch.root,
                                            env=environment, stderr=log)
        wait_for(node.is_up, 60, "start of varved")
        check_equal(core_limit(node.process.pid), limits, f"size of cores with {flags}")
        if flags:
            node.stop()
            continue
        node.process.send_signal(signal.SIGABRT)
        _, status = os.waitpid(node.process.pid, 0)
        node.process.returncode = -signal.SIGABRT
        check_equal((os.WTERMSIG(status), os.WCOREDUMP(status)), (signal.SIGABRT, False), "signal, and whether a core was left")
        node.process = None


def test_newer_schema_is_refused(scratch):
    node = scratch.node("n1").start()
    node.stop()
    run([sys.executable, "-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
         "c.execute('PRAGMA user_version = 999'); c.commit()",
         os.path.join(node.data, "catalog.db")])
    node.spawn()
    check_equal(node.process.wait(30), 1, "status of varved on a newer catalog")
    check("999" in node.log_text() and "newer" in node.log_text(), node.log_text()[-500:])


if __name__ == "__main__":
    harness.main(globals())
