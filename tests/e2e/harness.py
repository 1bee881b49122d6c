"""What end-to-end tests share: real daemons, a real registry, scratch directories, a TAP runner.

A test module defines functions named test_*, each taking a Scratch, and ends with
harness.main(globals()). Each test has its own directory below $TMPDIR; daemons, registries and mounts that it
made are gone afterwards, whether it passed or failed, with the keepers and workers of their volumes and what they
mounted. What a daemon should have taken away itself, and what will not go, fails the test. Nothing is at a fixed path
or port.

Environment (set by meson): VARVE_BUILD, the build directory with the programs under test;
VARVE_LONG=1 for long counts.
"""
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.environ.get("VARVE_BUILD", "")
LONG = os.environ.get("VARVE_LONG") == "1"
SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
sys.path.insert(0, SUPPORT)
from tap_report import explain  # noqa: E402  pylint: disable=wrong-import-position
VARVED = os.path.join(BUILD, "snapd", "varved")
VARVE = os.path.join(BUILD, "tools", "varve")


class Failed(Exception):
    """A test's finding; anything else that escapes a test is a fault of the test or harness."""


def check(condition, text):
    if not condition:
        raise Failed(text)


def check_equal(have, want, text):
    if have != want:
        raise Failed(f"{text}: {have!r} instead of {want!r}")


def run(args, **options):
    """Runs a stock tool; its failure fails the test with what it said."""
    options.setdefault("timeout", 300)
    options.setdefault("text", True)
    result = subprocess.run(args, capture_output=True, check=False, **options)
    if result.returncode != 0:
        raise Failed(f"{' '.join(map(str, args))} ended with {result.returncode}: "
                     f"{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failed(f"{what} did not happen within {seconds} s")


def processes_on(rootfs):
    """Pids of processes whose root directory lies on the mount at `rootfs`."""
    device = os.stat(rootfs).st_dev
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/root").st_dev == device:
                found.append(int(pid))
        except OSError:
            pass
    return found


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def processes(program, word):
    """Pids of live processes that run `program` and have `word` in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            path = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        if os.path.basename(path.removesuffix(" (deleted)")) == program and \
                word in read_text(f"/proc/{pid}/cmdline"):
            found.append(int(pid))
    return found


def send(pids, number=signal.SIGKILL):
    """Signals processes; those that are gone are no failure. Gives how many there were."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            count += 1
        except ProcessLookupError:
            pass
    return count


def loop_devices(prefix):
    """The loop devices whose backing file lies below `prefix`: {"/dev/loop3": backing file}."""
    found = {}
    for name in os.listdir("/sys/block"):
        backing = read_text(f"/sys/block/{name}/loop/backing_file").strip()
        if backing.startswith(prefix.rstrip("/") + "/"):
            found[f"/dev/{name}"] = backing
    return found


def mounts_below(prefix):
    """Mount points at or below a directory, in the order of mounting."""
    points = [line.split()[4].encode().decode("unicode_escape")
              for line in read_text("/proc/self/mountinfo").splitlines()]
    return [p for p in points if p == prefix or p.startswith(prefix + "/")]


class Reply:
    """What one call of the command line gave."""

    def __init__(self, result):
        self.status = result.returncode
        self.out = result.stdout
        self.err = result.stderr

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError as error:
            raise Failed(f"not one JSON document: {error}: {self.out[:500]}") from error


class Node:
    """One daemon with its data and run directory; can be killed and started again."""

    def __init__(self, scratch, name, remote=None, config=None, data=None):
        self.scratch = scratch
        self.name = name
        self.data = data or scratch.path(name, "data")
        self.run_dir = scratch.path(name, "run")
        self.socket = os.path.join(self.run_dir, "varved.sock")
        self.log = scratch.path(f"{name}.log")
        self.remote = remote
        self.config = config
        self.process = None
        os.makedirs(scratch.path(name), exist_ok=True)

    def args(self):
        args = [VARVED, "--data", self.data, "--run-dir", self.run_dir, "--node", self.name,
                "--allow-other-mount-namespace"]
        if self.remote:
            args += ["--remote", self.remote]
        if self.config:
            path = self.scratch.path(f"{self.name}.conf")
            with open(path, "w", encoding="utf-8") as f:
                f.write(self.config)
            args += ["--config", path]
        return args

    def spawn(self, fault=None, env=None):
        """Starts the daemon without waiting for it."""
        environment = dict(os.environ, **(env or {}))
        environment.pop("VARVE_FAULT", None)
        if fault:
            environment["VARVE_FAULT"] = fault
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.args(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment)

    def start(self, fault=None, env=None):
        self.spawn(fault, env)
        wait_for(lambda: self.is_up() or self.process.poll() is not None, 60, "start of varved")
        check(self.process.poll() is None, f"varved did not start: {self.log_text()[-2000:]}")
        return self

    def is_up(self):
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(self.socket)
                return True
            except OSError:
                return False

    def stop(self):
        """Orderly stop; a daemon that does not end with 0 fails the test."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired as error:
                self.kill()
                raise Failed("varved did not stop within 60 s of SIGTERM") from error
            check_equal(self.process.returncode, 0,
                        f"exit status of varved ({self.log_text()[-3000:]})")
        self.process = None

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self.process = None

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def keepers(self):
        return processes("varve-keeper", self.run_dir)

    def workers(self, volume=""):
        return processes("varve-volume", f"{self.data}/volumes/{volume}")

    def leaks(self):
        """What serves volumes that the daemon says nobody serves."""
        if not self.process or self.process.poll() is not None or not self.is_up():
            return []
        served = [w["id"] for w in self.ok("workspace", "ls")["workspaces"]
                  if w["state"] not in ("creating", "detached", "removing")]
        served += [r["volume"]["id"] for r in self.ok("run", "ls")["runs"] if r.get("volume")]
        found = [f"worker {pid}: {read_text(f'/proc/{pid}/cmdline')!r}" for pid in self.workers()]
        found += mounts_below(f"{self.run_dir}/volumes")
        found += [f"{device} on {backing}" for device, backing
                  in loop_devices(f"{self.run_dir}/volumes").items()]
        return [text for text in found if not any(volume in text for volume in served)]

    def call(self, *args, stdin=None, timeout=300, env=None):
        """Runs `varve ARGS` against this daemon; never fails by itself."""
        environment = dict(os.environ, VARVE_HOST=f"unix:{self.socket}", **(env or {}))
        environment.pop("VARVE_FAULT", None)
        result = subprocess.run([VARVE, *args], capture_output=True, text=True, check=False,
                                errors="surrogateescape", timeout=timeout, env=environment,
                                stdin=stdin or subprocess.DEVNULL)
        return Reply(result)

    def ok(self, *args, **options):
        """Runs `varve --json ARGS`, which must succeed, and gives its document."""
        reply = self.call("--json", *args, **options)
        check_equal(reply.status, 0, f"status of varve {' '.join(args)} ({reply.err.strip()})")
        return reply.json()

    def exec(self, run_id, *command, options=(), **rest):
        """Runs a command in a run, which must succeed, and gives its output."""
        reply = self.call("run", "exec", run_id, *options, "--", *command, **rest)
        check_equal(reply.status, 0,
                    f"status of {' '.join(command)} in {run_id} ({reply.out}{reply.err})")
        return reply.out

    def fails(self, status, *args, says=(), **options):
        """The command must fail with this status and one line that holds all of `says`."""
        reply = self.call(*args, **options)
        check_equal(reply.status, status, f"status of varve {' '.join(args)} "
                    f"({reply.out.strip()} {reply.err.strip()})")
        lines = [line for line in reply.err.split("\n") if line]
        check_equal(len(lines), 1, f"lines of the error of varve {' '.join(args)} ({reply.err})")
        for word in says:
            check(word.lower() in lines[0].lower(), f"'{word}' is not in: {lines[0]}")
        return lines[0]


class Registry:
    """Debian's docker-registry on a port that the kernel chose, with its own storage. `tls` is (ca, certificate, key),
    `users` a file of htpasswd, `deletes` whether it deletes."""

    def __init__(self, scratch, name="registry", storage=None, tls=None, users=None, deletes=True):
        self.scratch = scratch
        self.name = name
        self.storage = storage or scratch.path(name)
        self.tls = tls
        self.users = users
        self.deletes = deletes
        self.log = scratch.path(f"{name}.log")
        self.process = None
        self.port = 0

    def config(self):
        text = ("version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n"
                f"    rootdirectory: {self.storage}\n  delete:\n    enabled: {str(self.deletes).lower()}\n"
                f"http:\n  addr: 127.0.0.1:{self.port}\n  secret: varve-test\n")
        if self.tls:
            text += f"  tls:\n    certificate: {self.tls[1]}\n    key: {self.tls[2]}\n"
        if self.users:
            text += f"auth:\n  htpasswd:\n    realm: test\n    path: {self.users}\n"
        return text

    def start(self):
        """Starts it, again at the port that it had."""
        config = self.scratch.path(f"{self.name}.yml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(self.config())
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", config], stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)
        wait_for(lambda: self.find_port() or self.process.poll() is not None, 60, "start of docker-registry")
        check(self.process.poll() is None, f"docker-registry did not start: {read_text(self.log)[-2000:]}")
        return self

    def find_port(self):
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)\D", read_text(self.log))
        self.port = int(found.group(1)) if found else self.port
        return found is not None

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @property
    def base(self):
        return f"http{'s' if self.tls else ''}://{self.host}"

    @property
    def url(self):
        return f"{self.base}/varve"

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(20)
        self.process = None


class Scratch:
    """One test's directory and everything that has to end with the test."""

    def __init__(self, name):
        # Its name may become part of an image's reference, which mkdtemp's underscores cannot be everywhere.
        self.root = os.path.join(tempfile.gettempdir(), f"varve-{name.rstrip('_-')}-{secrets.token_hex(4)}")
        os.mkdir(self.root, 0o700)
        self.owned = []

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def node(self, name="n1", **options):
        node = Node(self, name, **options)
        self.owned.append(node)
        return node

    def registry(self, **options):
        registry = Registry(self, **options)
        self.owned.append(registry)
        return registry.start()

    def tmpfs(self, name, size):
        path = self.path(name)
        os.makedirs(path)
        run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path])
        return path

    def mounts(self):
        return mounts_below(self.root)

    def popen(self, args, **options):
        """A process that is killed with the test."""
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(args, **options)
        self.owned.append(process)
        return process

    def helpers(self):
        """Keepers first: they start workers again."""
        return [pid for program in ("varve-keeper", "varve-volume", "varve-freeze")
                for pid in processes(program, self.root)]

    def end(self, thing):
        try:
            if isinstance(thing, subprocess.Popen):
                thing.kill()
                thing.wait(30)
            elif isinstance(thing, Node):
                thing.kill()
            else:
                thing.stop()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"# cleaning up: {error}")

    def clear(self):
        """Ends everything; gives what would not go."""
        for thing in reversed(self.owned):
            self.end(thing)
        left = []
        for _ in range(100):
            send(self.helpers())
            for point in reversed(self.mounts()):
                subprocess.run(["umount", "-l", point], check=False, capture_output=True)
            left = ([f"process {pid}" for pid in self.helpers()] + self.mounts() +
                    list(loop_devices(self.root)))
            if not left:
                break
            time.sleep(0.1)
        self.owned.clear()
        return left

    def close(self):
        """Ends everything and removes the directory; gives what would not go."""
        left = self.clear()
        shutil.rmtree(self.root, ignore_errors=True)
        return left


def rootfs_tar():
    """A Debian root filesystem as a tar, made once per build directory, by the first test that wants it."""
    path = os.path.join(BUILD, "debian-rootfs.tar")
    with open(path + ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            run([sys.executable, os.path.join(SUPPORT, "debian_rootfs.py"), path + ".new"])
            os.rename(path + ".new", path)
    return path


def fault_points():
    names = run([VARVED, "--fault-points"]).split()
    check(names, "this build has no fault points (-Dfault_points=true)")
    return names


def attempt(function, scratch):
    def nodes():
        return [thing for thing in scratch.owned if isinstance(thing, Node)]

    try:
        function(scratch)
        for node in nodes():
            check(not any(word in log_of(node) for word in
                          ("ERROR: AddressSanitizer", "runtime error:", "LeakSanitizer")),
                  f"sanitizer report in the log of {node.name}: {log_of(node)[-4000:]}")
            check_equal(node.leaks(), [], f"what {node.name} has left behind")
        for thing in scratch.owned:
            check_equal(getattr(thing, "faults", str)(), "", "faults of a server of the test")
        return None
    except Failed as failure:
        return str(failure) + "".join(f"\n{n.name}: {log_of(n)[-1500:]}" for n in nodes())
    except Exception:  # pylint: disable=broad-except
        return traceback.format_exc()


def run_one(name, function):
    scratch = Scratch(re.sub(r"\W+", "-", name)[:30])
    failure = attempt(function, scratch)
    left = scratch.close()
    if left:
        failure = f"{failure or ''}\nthis would not go: {', '.join(left)}".strip()
    return failure


def log_of(node):
    """What the daemon said, and what keeper and workers did."""
    return read_text(node.log) + read_text(f"{node.run_dir}/keeper.log")


def each(name, cases, test):
    """Runs a part of a test, each case in a place of its own; says which one failed."""
    for number, case in enumerate(cases):
        inner = Scratch(f"{name}-{number}")
        try:
            test(inner, case)
        except Failed as failure:
            raise Failed(f"{case}: {failure}") from failure
        finally:
            left = inner.close()
        check(not left, f"{case} leaves behind: {left}")


def main(names):
    tests = [(n, f) for n, f in names.items() if n.startswith("test_") and callable(f)]
    wanted = sys.argv[1:]
    if wanted:
        tests = [(n, f) for n, f in tests if n in wanted]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, function) in enumerate(tests, 1):
        start = time.monotonic()
        failure = run_one(name, function)
        failed += failure is not None
        print(f"{'not ok' if failure else 'ok'} {number} - {name} "
              f"({time.monotonic() - start:.1f} s)", flush=True)
        if failure:
            explain(name, failure)
    sys.exit(1 if failed or not tests else 0)
