"""Checks with real programs: D07 (git), D08 (package managers and compilers)."""
import json
import os
import shutil
import subprocess
import sys
import zipfile

from posix_case import attempt, long, read_file, write_file

GIT = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null", HOME="/nonexistent",
           GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@example.org", GIT_COMMITTER_NAME="a",
           GIT_COMMITTER_EMAIL="a@example.org", GIT_AUTHOR_DATE="1700000000 +0000",
           GIT_COMMITTER_DATE="1700000000 +0000", LC_ALL="C")


def git(folder, *args, env=None):
    done = subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, check=False,
                          env=env or GIT, timeout=1200)
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(args)}: {done.returncode} {done.stderr[-800:]}")
    return done.stdout


def make_repository(case, files):
    """A bare repository with two branches that differ in kinds and case of names."""
    seed = case.path("seed")
    os.mkdir(seed)
    git(seed, "init", "-q", "-b", "main")
    for i in range(files):
        os.makedirs(f"{seed}/d{i % 97}", exist_ok=True)
        write_file(f"{seed}/d{i % 97}/f{i}", f"file {i}\n" * (1 + i % 40))
    write_file(f"{seed}/tool", "#!/bin/sh\n", mode=0o755)
    write_file(f"{seed}/thing", "a file here")
    os.mkdir(f"{seed}/place")
    write_file(f"{seed}/place/inside", "x")
    os.symlink("thing", f"{seed}/link")
    write_file(f"{seed}/Case", "upper")
    git(seed, "add", "-A")
    git(seed, "commit", "-qm", "one")
    git(seed, "checkout", "-qb", "other")
    git(seed, "rm", "-rqf", "thing", "place", "link", "Case")
    os.mkdir(f"{seed}/thing")
    write_file(f"{seed}/thing/inside", "a directory there")
    write_file(f"{seed}/place", "a file there")
    write_file(f"{seed}/link", "no link")
    write_file(f"{seed}/case", "lower")
    os.chmod(f"{seed}/tool", 0o644)
    git(seed, "add", "-A")
    git(seed, "commit", "-qm", "two")
    git(seed, "checkout", "-q", "main")
    git(case.dir, "clone", "-q", "--bare", seed, "bare.git")


def scanned(folder, trace):
    """How many files `git status` had to read, by its own trace."""
    git(folder, "status", "--porcelain", env=dict(GIT, GIT_TRACE2_EVENT=trace))
    total = 0
    with open(trace, encoding="utf-8") as f:
        for line in f:
            event = json.loads(line)
            if event.get("key") == "refresh/sum_scan":
                total += int(event["value"])
    os.unlink(trace)
    return total


def identities(folder):
    found = {}
    for top, dirs, files in os.walk(folder):
        for name in dirs + files:
            st = os.lstat(os.path.join(top, name))
            found[os.path.join(top, name)] = (st.st_ino, st.st_mtime_ns, st.st_ctime_ns, st.st_size,
                                              st.st_mode)
    return found


def d07(case):
    """git: clone, status, a quick edit of the same size, branches of other kinds, gc, fsck."""
    make_repository(case, long(1500, 20000))
    git(case.dir, "clone", "-q", case.path("bare.git"), "work")
    work, trace = case.path("work"), case.path("trace")
    case.same(git(work, "status", "--porcelain"), "", "status of a clone")
    git(work, "update-index", "--refresh")
    before = identities(work)
    case.remount()
    case.check(identities(work) == before, "a remount changed inode numbers or times")
    os.utime(f"{work}/.git/index")  # no entry is racy from here on
    scanned(work, trace)
    case.same(scanned(work, trace), 0, "files that a second status reads")
    write_file(f"{work}/tool", "#!/bin/zz\n")
    case.same(git(work, "diff", "--name-only"), "tool\n", "an edit of the same size")
    case.site.kill()
    git(work, "stash")
    case.same(git(work, "status", "--porcelain"), "", "after stash")
    git(work, "stash", "pop")
    git(work, "commit", "-qam", "three")
    git(work, "worktree", "add", "-q", "../second", "origin/other")
    case.same(sorted(os.listdir(case.path("second", "thing"))), ["inside"], "a worktree")
    for branch in ("origin/other", "main", "origin/other", "main"):
        git(work, "checkout", "-q", branch)
        case.same(git(work, "status", "--porcelain"), "", f"status of {branch}")
    case.same((os.path.islink(f"{work}/link"), os.path.isdir(f"{work}/place"),
               os.path.exists(f"{work}/case")), (True, True, False), "kinds after the last checkout")
    git(work, "repack", "-adq")
    git(work, "gc", "-q", "--prune=now")
    case.same(git(work, "fsck", "--full", "--strict"), "", "fsck")
    case.see("tree", git(work, "rev-parse", "HEAD^{tree}"))
    locks = [f for _, _, files in os.walk(case.dir) for f in files if f.endswith(".lock")]
    case.same(locks, [], "locks that are left")


def call(case, what, *args, cwd=None, env=None):
    done = subprocess.run(args, capture_output=True, text=True, check=False, cwd=cwd, timeout=1200,
                          env=dict(os.environ, LC_ALL="C", **(env or {})))
    case.check(done.returncode == 0, f"{what}: {done.returncode} {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def missing(case, program):
    """Says so where the machine lacks a program."""
    if shutil.which(program):
        return False
    case.see(program, "is not installed on this machine, not run")
    return True


def make_project(folder, files):
    """A small C project: a program of many objects that sums what they return."""
    os.makedirs(folder, exist_ok=True)
    for i in range(files):
        write_file(f"{folder}/part{i}.c", f'#include "parts.h"\nint part{i}(int x) '
                                          f"{{ return x * {i} + {i * i}; }}\n")
    write_file(f"{folder}/parts.h", "".join(f"int part{i}(int);\n" for i in range(files)))
    write_file(f"{folder}/main.c", '#include <stdio.h>\n#include "parts.h"\nint main(void) { int s = 0;\n' +
               "".join(f"s += part{i}(3);\n" for i in range(files)) + 'printf("%d\\n", s); }\n')
    write_file(f"{folder}/Makefile",
               "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n"
               "\t$(CC) -o $@ $^\n%.o: %.c parts.h\n\t$(CC) -O1 -c -o $@ $<\n"
               "clean:\n\trm -f program *.o\n")
    return sum(3 * i + i * i for i in range(files))


def c_project(case):
    want = make_project(case.path("c"), long(24, 400))
    call(case, "make", "make", "-s", "-j4", "-C", case.path("c"))
    case.same(call(case, "program", case.path("c", "program")), f"{want}\n", "output of the program")
    case.same(call(case, "make", "make", "-q", "-C", case.path("c")), "", "a second make does nothing")
    call(case, "make clean", "make", "-s", "-C", case.path("c"), "clean")
    case.site.kill()
    call(case, "make again", "make", "-s", "-j4", "-C", case.path("c"))
    case.same(call(case, "program", case.path("c", "program")), f"{want}\n", "output of another build")


def python_venv(case):
    venv = case.path("venv")
    call(case, "venv", sys.executable, "-m", "venv", "--without-pip", venv)
    write_file(f"{venv}/module.py", "VALUE = 42\n")
    code = "import sys; sys.path.insert(0, sys.prefix); import module; print(module.VALUE, sys.prefix)"
    case.check(call(case, "its python", f"{venv}/bin/python", "-c", code) == f"42 {venv}\n",
               "the environment answers otherwise")
    case.see("venv", "ok")
    done = subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True, check=False)
    if done.returncode != 0:
        case.see("pip", "is not installed on this machine (ensurepip), not run")
        return
    call(case, "ensurepip", f"{venv}/bin/python", "-m", "ensurepip", "--default-pip")
    wheel = case.path("thing-1-py3-none-any.whl")
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing/__init__.py", "NAME = 'thing'\n")
        archive.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        archive.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\n"
                                                    "Root-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("thing-1.dist-info/RECORD", "")
    call(case, "pip install -t", f"{venv}/bin/python", "-m", "pip", "install", "-q", "--no-index",
         "--disable-pip-version-check", "--no-deps", "-t", case.path("target"), wheel)
    case.same(read_file(case.path("target", "thing", "__init__.py")), b"NAME = 'thing'\n",
              "pip install -t")


def npm_install(case):
    if missing(case, "npm"):
        return
    count = long(6, 100)
    npm = {"HOME": case.path("home"), "npm_config_cache": case.path("npm-cache"),
           "npm_config_update_notifier": "false", "npm_config_audit": "false", "npm_config_fund": "false"}
    os.mkdir(case.path("home"))
    dependencies = {}
    for i in range(count):
        folder = case.path("packages", f"p{i}")
        os.makedirs(f"{folder}/lib")
        for j in range(long(20, 600)):
            write_file(f"{folder}/lib/m{j}.js", f"module.exports = {j};\n")
        write_file(f"{folder}/cli.js", "#!/usr/bin/env node\nconsole.log('cli')\n")
        write_file(f"{folder}/package.json", json.dumps({"name": f"p{i}", "version": "1.0.0",
                                                         "bin": {f"p{i}": "cli.js"}}))
        subprocess.run(["tar", "-C", case.path("packages"), "--transform", "s,^p[0-9]*,package,", "-czf",
                        case.path("packages", f"p{i}.tgz"), f"p{i}"], check=True)
        dependencies[f"p{i}"] = f"file:../packages/p{i}.tgz"
    os.mkdir(case.path("app"))
    write_file(case.path("app", "package.json"),
               json.dumps({"name": "app", "version": "1.0.0", "dependencies": dependencies}))
    call(case, "npm install", "npm", "install", "--offline", cwd=case.path("app"), env=npm)
    case.same(sorted(n for n in os.listdir(case.path("app", "node_modules")) if n[0] != "."),
              sorted(dependencies), "node_modules")
    case.same(call(case, "a program of it", case.path("app", "node_modules", ".bin", "p0")), "cli\n",
              "a program of a package")
    call(case, "npm ci", "npm", "ci", "--offline", cwd=case.path("app"), env=npm)
    shutil.rmtree(case.path("app", "node_modules"))
    call(case, "npm ci again", "npm", "ci", "--offline", cwd=case.path("app"), env=npm)
    case.same(len(os.listdir(case.path("app", "node_modules", "p1", "lib"))), long(20, 600),
              "files of a package")


def cargo_build(case):
    if missing(case, "cargo"):
        return
    count = long(4, 200)
    members = [f"c{i}" for i in range(count)]
    os.mkdir(case.path("crates"))
    write_file(case.path("crates", "Cargo.toml"),
               f'[workspace]\nresolver = "2"\nmembers = {json.dumps(members)}\n')
    for i, name in enumerate(members):
        folder = case.path("crates", name)
        os.makedirs(f"{folder}/src")
        needs = f'c{i - 1} = {{ path = "../c{i - 1}" }}\n' if i % 3 else ""
        write_file(f"{folder}/Cargo.toml", f'[package]\nname = "{name}"\nversion = "0.1.0"\n'
                                           f'edition = "2021"\n[dependencies]\n{needs}')
        inner = f"c{i - 1}::value() + 1" if i % 3 else "1"
        write_file(f"{folder}/src/lib.rs", f"pub fn value() -> u32 {{ {inner} }}\n")
    write_file(case.path("crates", "c1", "src", "main.rs"), 'fn main() { println!("{}", c1::value()); }\n')
    args = ("cargo", "build", "--offline", "--quiet")
    call(case, "cargo build", *args, cwd=case.path("crates"))
    case.same(call(case, "c1", case.path("crates", "target", "debug", "c1")), "2\n", "its output")
    before = identities(case.path("crates", "target", "debug", "deps"))
    call(case, "cargo build again", *args, cwd=case.path("crates"))
    case.check(identities(case.path("crates", "target", "debug", "deps")) == before,
               "a second build does something")
    case.same(os.stat(case.path("crates", "target", "debug", "c1")).st_nlink > 1, True,
              "the program is a hard link into deps")


def d08(case):
    """Compilers and package managers, without a network."""
    c_project(case)
    python_venv(case)
    npm_install(case)
    cargo_build(case)
    for program in ("pnpm", "uv"):
        missing(case, program)
    write_file(case.path("store"), "shared")
    os.link(case.path("store"), case.path("shared"))
    case.same(os.stat(case.path("store")).st_ino == os.stat(case.path("shared")).st_ino, True,
              "a hard link is one file")
    case.same(attempt(os.link, "/proc/self/exe", case.path("foreign")), "EXDEV", "a link from outside")
    for name in os.listdir(case.dir):
        subprocess.run(["rm", "-rf", case.path(name)], check=True)
    case.same(os.listdir(case.dir), [], "what is left after removal")
