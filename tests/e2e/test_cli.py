#!/usr/bin/env python3
"""The command line: usage errors, exit codes, documents, jobs, doctor."""
import json
import os
import re
import signal
import subprocess
import time

import harness
from harness import check, check_equal, run


def tiny_tar(scratch):
    tree = scratch.path("tiny")
    os.makedirs(f"{tree}/bin", exist_ok=True)
    run(["tar", "-C", tree, "-cf", scratch.path("tiny.tar"), "."])
    return scratch.path("tiny.tar")


def test_usage_errors(scratch):
    node = scratch.node("n1").start()
    for args in ((), ("nonsense",), ("image",), ("image", "nonsense"), ("image", "import"),
                 ("image", "ls", "extra"), ("run", "create"), ("snapshot", "create"),
                 ("run", "create", "x", "--workspace", "w:/w"), ("--nonsense", "image", "ls"),
                 ("snapshot", "create", "--run", "r", "--consistency", "freeze"),
                 ("snapshot", "create", "--run", "r", "--compression", "gzip"),
                 ("snapshot", "create", "--run", "r", "--label", "novalue"),
                 ("run", "create", "x", "--plain-upper=yes"), ("run", "create", "x", "--id"),
                 ("run", "create", "x", "--token", "many"), ("workspace", "fork", "a"),
                 ("workspace", "create", "a", "--size", "big"), ("volume", "ls"), ("prune",),
                 ("image", "pull"), ("image", "pull", "a:1", "b:1"), ("job", "wait")):
        reply = node.call(*args)
        check_equal(reply.status, 2, f"status of varve {args} ({reply.out} {reply.err})")
        check(reply.err.strip() and not reply.out, f"varve {args} says nothing or to stdout")
    check_equal(node.ok("job", "ls"), {"jobs": []}, "jobs after usage errors")


def test_help(scratch):
    node = scratch.node("n1")
    for args in ((), ("image",), ("image", "import"), ("run", "create"), ("run", "exec"),
                 ("snapshot", "create"), ("job", "wait"), ("doctor",), ("workspace", "create"), ("workspace", "mount")):
        reply = node.call(*args, "--help")
        check_equal(reply.status, 0, f"status of varve {args} --help")
        check("usage" in reply.out.lower(), f"help of {args}: {reply.out}")
        check(all(len(line) <= 100 for line in reply.out.split("\n")), f"width of {args} --help")


def test_version(scratch):
    node = scratch.node("n1")
    reply = node.call("version")
    check_equal(reply.status, 0, "version without a daemon")
    check(re.search(r"\d+\.\d+\.\d+", reply.out), reply.out)
    node.start()
    check("daemon" in node.call("version").out.lower(), "version with a daemon")
    json.loads(node.call("--json", "version").out)


def test_detach_wait_and_show(scratch):
    node = scratch.node("n1").start()
    job = node.ok("image", "import", tiny_tar(scratch), "--name", "t:1", "--detach")["job"]
    check(node.call("job", "wait", job).status == 0, "job wait")
    shown = node.ok("job", "show", job)
    for key in ("id", "kind", "state", "step", "progress", "error", "result"):
        check(key in shown, f"job show gives no {key}")
    check_equal((shown["id"], shown["kind"], shown["state"]), (job, "image.import", "done"), "job")
    check(shown["result"]["digest"].startswith("sha256:"), "result of the job")
    failed = node.ok("run", "create", "none:1", "--detach")["job"]
    check_equal(node.call("job", "wait", failed).status, 3, "job wait of a failed job")
    error = node.ok("job", "show", failed)["error"]
    check(error["code"] == "not_found" and error["message"], f"error of a failed job {error}")


def test_keys_join(scratch):
    node = scratch.node("n1").start()
    path = tiny_tar(scratch)
    jobs = {node.ok("image", "import", path, "--name", "t:1", "--key", "k", "--detach")["job"]
            for _ in range(5)}
    check_equal(len(jobs), 1, "jobs of five requests with one key")
    node.fails(4, "image", "import", path, "--name", "other:1", "--key", "k", says=["key"])
    first = node.ok("run", "create", "t:1", "--key", "r")
    second = node.ok("run", "create", "t:1", "--key", "r")
    check_equal(first["id"], second["id"], "runs of two requests with one key")


def test_twenty_clients_at_once(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", tiny_tar(scratch), "--name", "t:1")
    command = [harness.VARVE, "--host", f"unix:{node.socket}", "--json", "run", "create", "t:1",
               "--plain-upper"]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(20)]
    made = [json.loads(c.communicate(timeout=120)[0])["id"] for c in clients]
    check_equal(len(set(made)), 20, "runs")
    check_equal(len(node.ok("run", "ls")["runs"]), 20, "runs that are listed")
    for run_id in made:
        node.ok("run", "rm", run_id)


def test_lists_for_people(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", tiny_tar(scratch), "--name", "t:1")
    node.ok("run", "create", "t:1", "--id", "r")
    node.ok("snapshot", "create", "--run", "r", "--name", "s:1", "--comment", "a\x1b[31mred\n")
    for args, word in ((("image", "ls"), "t:1"), (("run", "ls"), "ready"),
                       (("snapshot", "ls"), "local"), (("job", "ls"), "snapshot.create"),
                       (("snapshot", "inspect", "s:1"), "red"), (("run", "inspect", "r"), "r")):
        reply = node.call(*args)
        check(reply.status == 0 and word in reply.out, f"varve {args}: {reply.out} {reply.err}")
        check("\x1b" not in reply.out, f"varve {args} lets control characters through")


def test_names_as_people_give_them(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", tiny_tar(scratch), "--name", "t:1")
    check(node.call("image", "import", scratch.path("tiny.tar"), "--name", "a").out
          .startswith("imported a:latest  "), "the name that was given is said")
    node.fails(2, "image", "import", "-", says=["--name"])
    node.fails(3, "run", "create", "nowhere", says=["nowhere", "`varve image ls`"])
    node.ok("run", "create", "t:1", "--id", "r")
    node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    check_equal(node.ok("snapshot", "push", "s:1")["durability"], "pushed", "push by name")
    check_equal(node.call("snapshot", "rm", "images/s:1").out, "removed images/s:1\n", "rm by name")
    node.fails(3, "snapshot", "push", "s:1", says=["s:1"])
    check_equal(node.ok("snapshot", "ls"), {"snapshots": []}, "snapshots")


def test_waiting_client_survives_a_restart(scratch):
    node = scratch.node("n1").start(fault="job.started=hang")
    client = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "--json", "image",
                               "import", tiny_tar(scratch), "--name", "t:1"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    harness.wait_for(lambda: [job for job in node.ok("job", "ls")["jobs"] if job["state"] == "running"],
                     30, "the job that hangs")
    time.sleep(0.5)  # for the client to hear that it is queued
    node.kill()
    node.start()
    out, err = client.communicate(timeout=60)
    check_equal(client.returncode, 0, f"status of the client ({err})")
    check_equal(json.loads(out)["names"], ["t:1"], "its result")


def test_orderly_stop_goes_on_later(scratch):
    node = scratch.node("n1").start()
    job = node.ok("image", "import", harness.rootfs_tar(), "--name", "d:1", "--detach")["job"]
    node.process.send_signal(signal.SIGTERM)
    check_equal(node.process.wait(30), 0, "status of varved after SIGTERM")
    check(not os.path.exists(node.socket), "the socket is still there")
    node.start()
    check_equal(node.call("job", "wait", job).status, 0, "the job after the restart")
    node.ok("image", "inspect", "d:1")


def test_config_file(scratch):
    config = "[node]\nlog_level = debug\n[remote]\nurl = oci:%s\n" % scratch.path("elsewhere")
    node = scratch.node("n1", config=config).start()
    check_equal(node.ok("version")["daemon"]["remote"], f"oci:{scratch.path('elsewhere')}",
                "remote of the config file")
    node.stop()
    for text, word in (("[node]\nnonsense = 1\n", "nonsense"), ("[nonsense]\na = 1\n", "nonsense"),
                       ("[node]\nlog_level = loud\n", "loud"), ("[node\n", "1"),
                       ("[remote]\nurl = ftp://x\n", "ftp")):
        bad = scratch.node("bad", config=text)
        bad.log = scratch.path("bad.log")
        if os.path.exists(bad.log):
            os.unlink(bad.log)
        bad.spawn()
        check(bad.process.wait(30) in (1, 2), f"status with {text!r}")
        check(word in bad.log_text(), f"with {text!r}: {bad.log_text()}")


def test_doctor(scratch):
    node = scratch.node("n1").start()
    reply = node.call("doctor")
    for word in ("kernel", "overlay", "erofs", "io_uring", "/dev/fuse", "loop", "user namespace",
                 "bwrap", "pasta", "freezer", "capabilit", "space"):
        check(word in reply.out.lower(), f"doctor says nothing of {word}: {reply.out}")
    check_equal(reply.status, 0, f"doctor on the reference machine: {reply.out}")
    checks = json.loads(node.call("--json", "doctor").out)["checks"]
    check(len(checks) >= 12 and all("name" in c and "status" in c for c in checks), "as JSON")


if __name__ == "__main__":
    harness.main(globals())
