#!/usr/bin/env python3
"""The verbs of runs: bundles for crun and runc, reset, rollback, recover, users of exec."""
import hashlib
import json
import os
import shutil
import subprocess
import time

import harness
from harness import check, check_equal


def put_blob(layout, data):
    digest = hashlib.sha256(data).hexdigest()
    with open(f"{layout}/blobs/sha256/{digest}", "wb") as f:
        f.write(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def layout_of(scratch, name, tar, config):
    """An OCI layout of one layer with this config."""
    layout = scratch.path(name)
    os.makedirs(f"{layout}/blobs/sha256")
    with open(tar, "rb") as f:
        layer = put_blob(layout, f.read())
    document = {"architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
                "os": "linux", "config": config,
                "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    made = put_blob(layout, json.dumps(document).encode())
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": dict(made, mediaType="application/vnd.oci.image.config.v1+json"),
                "layers": [dict(layer, mediaType="application/vnd.oci.image.layer.v1.tar")]}
    entry = dict(put_blob(layout, json.dumps(manifest).encode()),
                 mediaType="application/vnd.oci.image.manifest.v1+json")
    with open(f"{layout}/index.json", "w", encoding="utf-8") as f:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, f)
    with open(f"{layout}/oci-layout", "w", encoding="utf-8") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    return layout


def ready(scratch, config=None):
    """A node with the run "r"; the image's config may say more."""
    node = scratch.node("n1").start()
    if config is None:
        node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    else:
        layout = layout_of(scratch, "layout", harness.rootfs_tar(), config)
        node.ok("image", "import", layout, "--name", "debian:12")
    node.ok("run", "create", "debian:12", "--id", "r")
    return node


def rootfs_of(node, run_id="r"):
    return node.ok("run", "inspect", run_id)["rootfs"]


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


# --- Bundles ---

class Container:
    """A container of crun or runc, which is gone afterwards. crun 1.8.1 refuses a hybrid cgroup
    tree, so both see the host without its part of version 2."""

    def __init__(self, scratch, runtime, bundle):
        self.command = [runtime, "--root", scratch.path(f"{runtime}-state")]
        self.name = f"varve-test-{os.getpid()}-{os.path.basename(scratch.root)}-{runtime}"
        self.bundle = bundle

    def args(self, *words):
        return ["unshare", "-m", "--propagation", "slave", "sh", "-c",
                'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh", *self.command, *words]

    def run(self, **options):
        return subprocess.run(self.args("run", "--bundle", self.bundle, self.name),
                              capture_output=True, text=True, check=False, timeout=60,
                              stdin=subprocess.DEVNULL, **options)

    def start(self):
        return subprocess.Popen(self.args("run", "--bundle", self.bundle, self.name),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def delete(self):
        subprocess.run(self.args("delete", "--force", self.name), capture_output=True, check=False,
                       timeout=60)


def with_runtimes(scratch, node, use):
    for runtime in ("crun", "runc"):
        check(shutil.which(runtime), f"{runtime} is not installed")
        use(runtime, scratch, node)


def start_a_bundle(runtime, scratch, node):
    bundle = scratch.path(f"bundle-{runtime}")
    script = (f"set -e; echo {runtime} > /made-by-{runtime}; id -u; hostname; pwd; echo $A; "
              "cat /proc/net/dev | grep -c :; grep NoNewPrivs /proc/self/status; "
              "mknod /dev/disk b 8 0; ! head -c 1 /dev/disk 2>/dev/null; ls /proc | grep -c '^[0-9]'")
    reply = node.ok("run", "bundle", "r", bundle, "--env", "A=b c", "--", "sh", "-c", script)
    check_equal(reply["bundle"], bundle, "bundle")
    check_equal(os.listdir(bundle), ["config.json"], "what the bundle holds")
    check_equal(os.stat(f"{bundle}/config.json").st_mode & 0o777, 0o600, "mode of config.json")
    container = Container(scratch, runtime, bundle)
    try:
        result = container.run()
        check_equal(result.returncode, 0, f"status of {runtime} ({result.stdout}{result.stderr})")
        words = result.stdout.split()
        check_equal(words[:8], ["0", "r", "/", "b", "c", "1", "NoNewPrivs:", "1"], "output")
        check(int(words[8]) < 6, f"processes inside: {result.stdout}")
    finally:
        container.delete()
    made = node.ok("snapshot", "create", "--run", "r", "--name", f"by:{runtime}")
    node.ok("run", "create", made["id"], "--id", f"of-{runtime}")
    check_equal(read(f"{rootfs_of(node, f'of-{runtime}')}/made-by-{runtime}"), f"{runtime}\n",
                "what the container wrote")


def test_crun_and_runc_start_a_bundle(scratch):
    with_runtimes(scratch, ready(scratch), start_a_bundle)


def a_live_container(runtime, scratch, node):
    bundle = scratch.path(f"live-{runtime}")
    node.ok("run", "bundle", "r", bundle, "--", "sleep", "300")
    container = Container(scratch, runtime, bundle)
    process = container.start()
    try:
        rootfs = rootfs_of(node)
        # A process of the runtime itself holds the mount only for moments.
        harness.wait_for(lambda: any(name == "sleep" for name in names_on(rootfs)), 30,
                         f"start of {runtime}")
        for verb in (("snapshot", "create", "--run", "r"), ("run", "rm", "r"),
                     ("run", "reset", "r"), ("run", "rollback", "r", "debian:12")):
            node.fails(4, *verb, says=["run r", "process"])
        reply = node.ok("run", "rollback", "r", "debian:12", "--kill")
        check(reply["killed"] >= 1, f"nobody was ended: {reply}")
        process.wait(30)
    finally:
        container.delete()
        process.kill()
        process.wait(20)


def names_on(rootfs):
    found = []
    for pid in harness.processes_on(rootfs):
        try:
            found.append(read(f"/proc/{pid}/comm").strip())
        except OSError:
            pass
    return found


def test_a_live_container_is_a_use_of_the_run(scratch):
    with_runtimes(scratch, ready(scratch), a_live_container)


def test_a_bundle_is_what_the_image_says(scratch):
    node = ready(scratch, {"Env": ["A=1", "PATH=/bin"], "Entrypoint": ["/bin/sh", "-c"],
                           "Cmd": ["true"], "WorkingDir": "/srv", "User": "mail:tty"})
    bundle = scratch.path("bundle")
    node.ok("run", "bundle", "r", bundle)
    config = json.loads(read(f"{bundle}/config.json"))
    process = config["process"]
    check_equal(process["args"], ["/bin/sh", "-c", "true"], "command")
    check_equal(process["cwd"], "/srv", "directory")
    check_equal(sorted(process["env"]), ["A=1", "HOME=/var/mail", "PATH=/bin"], "environment")
    check_equal((process["user"]["uid"], process["user"]["gid"]), (8, 5), "user")
    check_equal(list(process["capabilities"]), ["bounding"], "capabilities of another than root")
    check_equal(config["annotations"]["io.varve.runsc.flags"], "--overlay2=none", "annotation")
    before = os.stat(f"{bundle}/config.json").st_ino
    node.ok("run", "bundle", "r", bundle, "--user", "root", "--workdir", "/tmp", "--tty", "--",
            "/bin/true")
    check(os.stat(f"{bundle}/config.json").st_ino != before, "the older config.json was replaced")
    process = json.loads(read(f"{bundle}/config.json"))["process"]
    check_equal((process["args"], process["cwd"], process["terminal"], process["user"]["uid"]),
                (["/bin/true"], "/tmp", True, 0), "what the call said")
    with_user = scratch.path("ran")
    node.ok("run", "bundle", "r", with_user, "--", "sh", "-c", "id -u; id -g; pwd; touch /srv/x")
    container = Container(scratch, "crun", with_user)
    try:
        result = container.run()
        check_equal(result.stdout.split(), ["8", "5", "/srv"], f"who it is ({result.stderr})")
        check(result.returncode != 0, "another user than root wrote into /srv")
    finally:
        container.delete()


def test_a_bundle_that_cannot_be_made(scratch):
    node = ready(scratch)
    full = scratch.path("full")
    os.makedirs(full)
    write(f"{full}/notes", "mine")
    node.fails(4, "run", "bundle", "r", full, "--", "true", says=["notes", "empty"])
    check_equal(os.listdir(full), ["notes"], "what was there")
    node.fails(2, "run", "bundle", "r", scratch.path("b"), says=["no command"])
    node.fails(3, "run", "bundle", "r", scratch.path("b"), "--user", "nobody-here", "--", "true",
               says=["nobody-here", "passwd"])
    node.fails(2, "run", "bundle", "r", scratch.path("b"), "--workdir", "srv", "--", "true",
               says=["absolute"])
    node.fails(3, "run", "bundle", "none", scratch.path("c"), "--", "true", says=["none"])
    node.fails(1, "run", "bundle", "r", scratch.path("no", "such"), "--", "true", says=["such"])
    check_equal(os.listdir(scratch.path("b")), [], "nothing is half written")


# --- Reset and rollback ---

def test_reset(scratch):
    node = ready(scratch)
    rootfs = rootfs_of(node)
    before = node.ok("run", "inspect", "r")
    fresh = sorted(os.listdir(rootfs))
    node.exec("r", "sh", "-c", "echo x > /new; rm -r /opt; chmod 700 /srv; echo y >> /etc/passwd")
    node.ok("run", "reset", "r")
    check_equal(sorted(os.listdir(rootfs)), fresh, "root directory after reset")
    check_equal(os.stat(f"{rootfs}/srv").st_mode & 0o777, 0o755, "mode of a directory")
    check("y\n" not in read(f"{rootfs}/etc/passwd"), "a change is still there")
    after = node.ok("run", "inspect", "r")
    volumes = [document.pop("volume") for document in (before, after)]
    check_equal(after, before, "the run's document")
    check_equal(volumes[1]["id"], volumes[0]["id"], "the run's volume")
    check(volumes[1]["filesystem"]["used"] < volumes[0]["filesystem"]["used"] + (1 << 20), f"used: {volumes}")
    check_equal(node.exec("r", "echo", "works"), "works\n", "exec after reset")
    check_equal(os.listdir(f"{node.data}/tmp"), [], "what is left in DATA/tmp")
    node.fails(3, "run", "reset", "none", says=["none"])


def test_reset_of_a_run_in_use(scratch):
    node = ready(scratch)
    node.exec("r", "touch", "/new")
    sandbox = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                                "--", "sleep", "300"], stdin=subprocess.DEVNULL)
    harness.wait_for(lambda: "sleep" in names_on(rootfs_of(node)), 20, "start of the sandbox")
    node.fails(4, "run", "reset", "r", says=["run r", "process"])
    check(os.path.exists(f"{rootfs_of(node)}/new"), "the run is as it was")
    sandbox.terminate()
    sandbox.wait(20)
    node.ok("run", "reset", "r")
    check(not os.path.exists(f"{rootfs_of(node)}/new"), "the run was reset")


def test_rollback(scratch):
    node = ready(scratch)
    rootfs = rootfs_of(node)
    node.exec("r", "sh", "-c", "echo one > /state")
    one = node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    node.exec("r", "sh", "-c", "echo two > /state; touch /later")
    result = node.ok("run", "rollback", "r", one["id"])
    check_equal((result["id"], result["image"], result["killed"]), ("r", one["digest"], 0), "result")
    check_equal(read(f"{rootfs}/state"), "one\n", "state after rollback")
    check(not os.path.exists(f"{rootfs}/later"), "what came later is gone")
    run = node.ok("run", "inspect", "r")
    check_equal((run["image"], run["image_name"]), (one["digest"], one["id"]), "image of the run")
    safety = node.ok("snapshot", "inspect", result["safety_snapshot"])
    check_equal(safety["labels"], {"varve.auto": "rollback"}, "labels of the safety snapshot")
    left = time.mktime(time.strptime(safety["expires"], "%Y-%m-%dT%H:%M:%SZ")) - time.mktime(
        time.gmtime())
    check(23.8 * 3600 < left < 24.2 * 3600, f"it expires in {left} s")
    # And back again: nothing was written since, so there is nothing to save.
    again = node.ok("run", "rollback", "r", result["safety_snapshot"])
    check_equal(again["safety_snapshot"], None, "a safety snapshot of nothing")
    check_equal(read(f"{rootfs}/state"), "two\n", "state after the second rollback")
    check(os.path.exists(f"{rootfs}/later"), "what the safety snapshot holds")
    # Snapshots stand on the image that the run has now.
    node.exec("r", "touch", "/last")
    last = node.ok("snapshot", "create", "--run", "r")
    check_equal(last["base"], again["image"], "base of a later snapshot")
    node.fails(3, "run", "rollback", "r", "nothing:1", says=["nothing"])
    node.fails(3, "run", "rollback", "none", "debian:12", says=["none"])
    node.ok("run", "rollback", "r", "debian:12")
    check(not os.path.exists(f"{rootfs}/state"), "the template again")


def test_rollback_ends_what_uses_the_run_only_when_told(scratch):
    node = ready(scratch)
    node.exec("r", "touch", "/new")
    sandbox = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                                "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    shell = subprocess.Popen(["sleep", "300"], cwd=rootfs_of(node))
    harness.wait_for(lambda: "sh" in names_on(rootfs_of(node)), 20, "start of the sandbox")
    node.fails(4, "run", "rollback", "r", "debian:12", says=["run r", "process"])
    check(os.path.exists(f"{rootfs_of(node)}/new"), "the run is as it was")
    result = node.ok("run", "rollback", "r", "debian:12", "--kill")
    # The one of the host, and inside process 1 and the shell, whichever is ended first.
    check(result["killed"] >= 3, f"processes that were ended: {result}")
    check_equal(shell.wait(20), -9, "end of a process of the host")
    said = sandbox.communicate(timeout=30)[1]
    check("ended from outside" in said, f"what the client of the sandbox says: {said}")
    check(not os.path.exists(f"{rootfs_of(node)}/new"), "the run was rolled back")
    check(result["safety_snapshot"], "there is no safety snapshot")


def test_rollback_that_cannot_save_changes_nothing(scratch):
    node = ready(scratch)
    rootfs = rootfs_of(node)
    # More holes than a snapshot takes.
    node.exec("r", "sh", "-c", "echo kept > /new; truncate -s 70G /sparse")
    node.fails(1, "run", "rollback", "r", "debian:12", says=["as it was", "sparse"])
    check_equal(read(f"{rootfs}/new"), "kept\n", "the run is as it was")
    check_equal(node.exec("r", "cat", "/new"), "kept\n", "and mounted")
    check_equal(node.ok("snapshot", "ls")["snapshots"], [], "snapshots")


# --- Recover ---

def test_recover(scratch):
    node = ready(scratch)
    rootfs = rootfs_of(node)
    check_equal(node.ok("recover")["items"], [], "items of a node that is well")
    node.exec("r", "sh", "-c", "echo kept > /new")
    harness.run(["umount", rootfs])
    os.makedirs(f"{node.run_dir}/runs/stray/rootfs")
    os.makedirs(f"{node.run_dir}/runs/busy/rootfs")
    harness.run(["mount", "-t", "overlay", "overlay", "-o", "lowerdir=/etc:/usr",
                 f"{node.run_dir}/runs/busy/rootfs"])
    os.makedirs(f"{node.data}/runs/unknown/upper")
    os.makedirs(f"{node.data}/tmp/.tmp-0123456789abcdef")
    user = subprocess.Popen(["sleep", "300"], cwd=f"{node.run_dir}/runs/busy/rootfs")
    plan = node.ok("recover", "--plan")["items"]
    objects = {item["object"]: item for item in plan}
    check_equal(set(objects), {"run:r", "RUN/runs/stray", "RUN/runs/busy", "DATA/runs/unknown"},
                "what the plan names")
    check(not os.path.exists(f"{rootfs}/new"), "a plan mounts nothing")
    reply = node.call("recover")
    check_equal(reply.status, 1, f"status while something is busy ({reply.out}{reply.err})")
    check("mounted again" in reply.out and "in use by process" in reply.out, reply.out)
    check_equal(read(f"{rootfs}/new"), "kept\n", "the run is mounted again")
    check(not os.path.exists(f"{node.run_dir}/runs/stray"), "a stray mount point stays")
    check(os.path.ismount(f"{node.run_dir}/runs/busy/rootfs"), "a busy mount was taken away")
    check(os.path.exists(f"{node.data}/runs/unknown/upper"), "the only copy was removed")
    user.kill()
    user.wait(20)
    items = node.ok("recover")["items"]
    check_equal({item["object"] for item in items}, {"RUN/runs/busy", "DATA/runs/unknown"},
                "the second time")
    os.rmdir(f"{node.data}/runs/unknown/upper")
    os.rmdir(f"{node.data}/runs/unknown")
    reply = node.call("recover")
    check_equal((reply.status, reply.out), (0, "everything is as it should be\n"), "the third time")


def test_exec_and_bundle_mount_what_is_not_mounted(scratch):
    node = ready(scratch)
    node.exec("r", "sh", "-c", "echo kept > /new")
    harness.run(["umount", rootfs_of(node)])
    check_equal(node.exec("r", "cat", "/new"), "kept\n", "exec after the mount was gone")
    harness.run(["umount", rootfs_of(node)])
    node.ok("run", "bundle", "r", scratch.path("b"), "--", "true")
    check_equal(read(f"{rootfs_of(node)}/new"), "kept\n", "after the bundle")


# --- Users, directories and names of exec ---

def test_exec_as_the_images_user(scratch):
    node = ready(scratch, {"User": "1000:1001", "WorkingDir": "/home/some/deep"})
    out = node.exec("r", "sh", "-c", "id -u; id -g; id -G; pwd; stat -c '%u %a' .; echo $HOME; "
                    "grep CapEff /proc/self/status; touch x 2>/dev/null || echo refused; "
                    "echo out > /dev/stdout; echo err > /dev/stderr")
    check_equal(out.split(), ["1000", "1001", "1001", "/home/some/deep", "0", "755", "/", "CapEff:",
                              "0" * 16, "refused", "out"], "the image's user")
    out = node.exec("r", "sh", "-c", "id -u; echo $HOME; touch /made-by-root",
                    options=["--user", "root"])
    check_equal(out.split(), ["0", "/root"], "--user root")
    out = node.exec("r", "sh", "-c", "id -un; id -gn; echo $HOME", options=["--user=mail:tty"])
    check_equal(out.split(), ["mail", "tty", "/var/mail"], "--user with names")
    node.exec("r", "usermod", "-a", "-G", "audio,video", "games", options=["--user", "0"])
    out = node.exec("r", "id", "-Gn", options=["--user", "games"])
    check_equal(sorted(out.split()), ["audio", "games", "video"], "supplementary groups")
    node.fails(3, "run", "exec", "r", "--user", "nobody-here", "--", "true", says=["nobody-here"])
    node.fails(2, "run", "exec", "r", "--user", "a:b:c", "--", "true", says=["a:b:c"])
    node.fails(2, "run", "exec", "r", "--user", "70000", "--", "true", says=["70000", "65535"])


def test_exec_as_another_user_on_a_terminal(scratch):
    node = ready(scratch, {"User": "games"})
    import pty
    pid, master = pty.fork()
    if pid == 0:
        os.execv(harness.VARVE, [harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                                 "--", "sh", "-c", "echo on > $(tty) && exit 6"])
    out = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        out += chunk
    check_equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 6, f"status ({out!r})")
    check(b"on" in out, f"output {out!r}")


def test_a_working_directory_that_is_none(scratch):
    node = ready(scratch, {"WorkingDir": "/etc/passwd/x"})
    node.fails(126, "run", "exec", "r", "--", "true", says=["/etc/passwd/x", "directory"])


def test_names_in_an_image_without_resolv_conf(scratch):
    node = ready(scratch)
    rootfs = rootfs_of(node)
    os.makedirs(f"{rootfs}/etc", exist_ok=True)
    for link in (None, "../run/systemd/resolve/stub-resolv.conf"):
        if os.path.lexists(f"{rootfs}/etc/resolv.conf"):
            os.unlink(f"{rootfs}/etc/resolv.conf")
        if link:
            os.symlink(link, f"{rootfs}/etc/resolv.conf")
        inside = node.exec("r", "cat", "/etc/resolv.conf", options=["--net", "host"])
        check_equal(inside, read("/etc/resolv.conf"), "the host's resolv.conf")
        inside = node.exec("r", "cat", "/etc/resolv.conf", options=["--net", "pasta"])
        check("nameserver" in inside, f"resolv.conf with pasta: {inside}")
        check_equal(os.stat(f"{rootfs}/etc/resolv.conf").st_size if not link else os.stat(
            f"{rootfs}/run/systemd/resolve/stub-resolv.conf").st_size, 0, "the run's own file")


def test_who_may_exec(scratch):
    node = ready(scratch)
    reply = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                            harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                            "--net", "pasta", "--", "true"], capture_output=True, text=True,
                           check=False, timeout=60, stdin=subprocess.DEVNULL)
    lines = reply.stderr.strip().split("\n")
    check(reply.returncode == 1 and len(lines) == 1 and "needs root" in lines[0],
          f"what another user than root is told: {reply}")


if __name__ == "__main__":
    harness.main(globals())
