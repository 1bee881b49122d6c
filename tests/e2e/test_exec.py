#!/usr/bin/env python3
"""`run exec`: what works inside a sandbox, and what never does."""
import os
import signal
import subprocess
import time

import harness
from harness import check, check_equal


def ready(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    node.ok("run", "create", "debian:12", "--id", "r")
    return node


def test_root_inside_has_what_installs_need(scratch):
    node = ready(scratch)
    out = node.exec("r", "sh", "-c", """set -e
        id -u; touch /f; chown 1000:2000 /f; stat -c %u:%g /f; chmod 4755 /f; stat -c %a /f
        useradd -m u; su u -c 'id -u'; su u -c 'test ! -w /etc/passwd && echo refused'
        chgrp shadow /f; mkdir -m 2775 /sg; touch /sg/x; echo $HOME""")
    check_equal(out.split(), ["0", "1000:2000", "4755", "1000", "refused", "/root"], "output")
    rootfs = node.ok("run", "inspect", "r")["rootfs"]
    st = os.stat(f"{rootfs}/f")
    check_equal((st.st_uid, st.st_gid), (1000, 42), "owner on the host's side")


def test_no_power_over_the_host(scratch):
    node = ready(scratch)
    attempts = {
        "mount a tmpfs": "mount -t tmpfs t /mnt",
        "mount a second proc": "mkdir -p /p && mount -t proc p /p",
        "write a sysctl": "echo x > /proc/sys/kernel/core_pattern",
        "write sysrq": "echo h > /proc/sysrq-trigger",
        "make a device": "mknod /dev-null c 1 3",
        "remount the root": "mount -o remount,rw /proc/sys",
        "unmount proc's cover": "umount /proc/sys",
        "proc in a nested namespace": "unshare -Urmpf sh -c 'mkdir -p /p && mount -t proc p /p'",
        "set the host name": "unshare -u true",
        "set the time": "date -s @0",
        "kill a process of the host": f"kill -9 {os.getpid()}",
        "lower its oom score": "echo -1000 > /proc/self/oom_score_adj",
    }
    for what, command in attempts.items():
        reply = node.call("run", "exec", "r", "--", "sh", "-c", command)
        check(reply.status != 0, f"'{what}' worked: {reply.out}{reply.err}")
    caps = node.exec("r", "sh", "-c", "grep CapEff /proc/self/status").split()[1]
    check_equal(int(caps, 16) & (1 << 21), 0, "CAP_SYS_ADMIN inside")
    check_equal(int(caps, 16) & (1 << 12), 0, "CAP_NET_ADMIN inside")


def test_it_sees_only_itself(scratch):
    node = ready(scratch)
    pids = node.exec("r", "sh", "-c", "ls /proc | grep -c '^[0-9]'")
    check(int(pids) < 10, f"{pids} processes are seen")
    out = node.exec("r", "sh", "-c", "ls /proc/self/fd; readlink /proc/self/fd/*; true")
    numbers = [w for w in out.split() if w.isdigit()]
    check(set(numbers) <= {"0", "1", "2", "3"}, f"descriptors inside: {out}")
    check(scratch.root not in out, f"a descriptor of the host is inside: {out}")
    out = node.exec("r", "sh", "-c", "env", env={"SECRET_OF_THE_HOST": "x"})
    check("SECRET_OF_THE_HOST" not in out, "the environment leaks")
    links = node.exec("r", "sh", "-c", "cat /proc/net/dev").split("\n")
    check_equal([line.split(":")[0].strip() for line in links[2:] if line], ["lo"], "interfaces")


def test_environment_and_network_options(scratch):
    node = ready(scratch)
    check_equal(node.exec("r", "sh", "-c", "echo $A-$B", options=["--env", "A=1", "--env=B=x y"]),
                "1-x y\n", "--env")
    node.fails(2, "run", "exec", "r", "--env", "novalue", "--", "true", says=["novalue"])
    node.fails(2, "run", "exec", "r", "--net", "bridge", "--", "true", says=["bridge"])
    own = os.readlink("/proc/self/ns/net")
    check_equal(node.exec("r", "readlink", "/proc/self/ns/net", options=["--net", "host"]).strip(),
                own, "--net host")
    inside = node.exec("r", "readlink", "/proc/self/ns/net", options=["--net", "pasta"]).strip()
    check(inside != own, "--net pasta has the host's namespace")


def test_exit_codes_and_signals(scratch):
    node = ready(scratch)
    for status in (0, 1, 7, 42, 255):
        reply = node.call("run", "exec", "r", "--", "sh", "-c", f"exit {status}")
        check_equal(reply.status, status, "exit status passed through")
    check_equal(node.call("run", "exec", "r", "--", "sh", "-c", "kill -TERM $$").status, 143,
                "status after a signal")
    check_equal(node.call("run", "exec", "r", "--", "/no/such/program").status, 127,
                "status of a missing command")
    node.fails(3, "run", "exec", "none", "--", "true", says=["none"])
    node.fails(2, "run", "exec", "r", says=["command"])


def test_output_goes_through_whole(scratch):
    node = ready(scratch)
    result = subprocess.run([harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r", "--",
                             "sh", "-c", "head -c 5000000 /dev/zero; cat"],
                            input=b"y" * 300000, capture_output=True, check=False, timeout=120)
    check_equal(result.returncode, 0, f"status ({result.stderr[-300:]})")
    check_equal(len(result.stdout), 5300000, "bytes through the pipe")


def processes_of(node):
    return harness.processes_on(node.ok("run", "inspect", "r")["rootfs"])


def test_the_clients_death_ends_the_sandbox(scratch):
    node = ready(scratch)
    for ending in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        client = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec",
                                   "r", "--", "sh", "-c", "sleep 300 & sleep 300"],
                                  stdin=subprocess.DEVNULL)
        harness.wait_for(lambda: len(processes_of(node)) >= 3, 20, "start of the sandbox")
        client.send_signal(ending)
        client.wait(20)
        harness.wait_for(lambda: not processes_of(node), 20, f"end after {ending!r}")
    node.ok("snapshot", "create", "--run", "r")


def test_snapshot_and_removal_wait_for_nobody(scratch):
    node = ready(scratch)
    client = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                               "--", "sleep", "300"], stdin=subprocess.DEVNULL)
    harness.wait_for(lambda: processes_of(node), 20, "start of the sandbox")
    line = node.fails(4, "snapshot", "create", "--run", "r", says=["r"])
    check("pid" in line or "process" in line or "sandbox" in line, f"who is it? {line}")
    node.fails(4, "run", "rm", "r", says=["r"])
    # Several sandboxes of one run may live side by side.
    check_equal(node.exec("r", "echo", "second"), "second\n", "a second sandbox")
    client.terminate()
    client.wait(20)
    harness.wait_for(lambda: not processes_of(node), 20, "end of the sandbox")
    node.ok("snapshot", "create", "--run", "r")
    node.ok("run", "rm", "r")


def test_a_process_of_another_engine_is_seen(scratch):
    node = ready(scratch)
    rootfs = node.ok("run", "inspect", "r")["rootfs"]
    other = subprocess.Popen(["chroot", rootfs, "sleep", "300"])
    harness.wait_for(lambda: processes_of(node), 20, "start of the process")
    node.fails(4, "snapshot", "create", "--run", "r", says=[str(other.pid)])
    other.kill()
    other.wait(20)
    node.ok("snapshot", "create", "--run", "r")


def test_a_terminal_works(scratch):
    node = ready(scratch)
    import pty
    pid, master = pty.fork()
    if pid == 0:
        os.execv(harness.VARVE, [harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                                 "--", "sh", "-c", "tty; read x; echo got $x; exit 5"])
    os.write(master, b"typed\n")
    out = b""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        out += chunk
    _, status = os.waitpid(pid, 0)
    check_equal(os.waitstatus_to_exitcode(status), 5, f"status on a terminal ({out!r})")
    check(b"/dev/" in out and b"got typed" in out, f"terminal output {out!r}")


if __name__ == "__main__":
    harness.main(globals())
