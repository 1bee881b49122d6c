#!/usr/bin/env python3
"""Programs that work in a directory and check everything they get back, for stress and kills.

usage: stress_programs.py KIND DIRECTORY OUTSIDE SEED STOP

KIND is git, sqlite-wal, sqlite-delete, compiler, durable, names. Each works in DIRECTORY, which it makes,
until the file STOP exists, then checks all of it once more. OUTSIDE is a directory on another
file system: there it notes what has been acknowledged. Any error, any wrong byte and
anything acknowledged and missing ends it with status 1 and the reason on its output. Nothing is
tried again.
"""
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import traceback
import zlib


class Wrong(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Wrong(text)


def note(log, line):
    """One line, whole, to a log outside."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


def noted(log):
    if not os.path.exists(log):
        return []
    with open(log, encoding="ascii") as f:
        return f.read().split("\n")[:-1]


# SQLite: rows whose content follows from their number.

def row(number):
    return random.Random(number).randbytes(200 + number % 3000)


def sqlite_open(path):
    database = sqlite3.connect(path, timeout=120, isolation_level=None)
    database.execute("PRAGMA synchronous = FULL")
    return database


def sqlite_make(path, mode):
    database = sqlite_open(path)
    reply = database.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
    database.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, data BLOB)")
    database.close()
    return reply


def sqlite_write(path, log, writer, count, stop=None):
    """Transactions of three rows; each is noted when its commit has returned."""
    database = sqlite_open(path)
    for i in range(count):
        if stop and os.path.exists(stop):
            break
        first = writer * 1000000 + i * 3
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)",
                             [(n, row(n)) for n in range(first, first + 3)])
        database.execute("COMMIT")
        note(log, str(first))
    database.close()
    return 0


def sqlite_check(path, log):
    """What is wrong with a database; "" when nothing is."""
    database = sqlite_open(path)
    have = set()
    try:
        reply = database.execute("PRAGMA integrity_check").fetchall()
        if reply != [("ok",)]:
            return f"integrity_check: {reply[:3]}"
        for number, data in database.execute("SELECT number, data FROM rows"):
            if data != row(number):
                return f"row {number} has other bytes"
            have.add(number)
    finally:
        database.close()
    for line in noted(log):
        lost = [n for n in range(int(line), int(line) + 3) if n not in have]
        if lost:
            return f"rows {lost} were committed and are missing"
    return ""


def sqlite_loop(folder, outside, seed, stop, mode):
    path, log = os.path.join(folder, "rows.db"), os.path.join(outside, f"{mode}-{seed}.log")
    need(sqlite_make(path, mode) == mode, f"journal mode {mode} is refused")
    rounds = 0
    while not os.path.exists(stop):
        children = []
        for n in range(2):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    status = sqlite_write(path, log, rounds * 2 + n, 40, stop)
                except BaseException:  # pylint: disable=broad-except
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            children.append(pid)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        need(statuses == [0, 0], f"writers ended with {statuses}")
        rounds += 1
        if rounds % 4 == 0:
            wrong = sqlite_check(path, log)
            need(not wrong, wrong)
    wrong = sqlite_check(path, log)
    need(not wrong, wrong)
    return f"{rounds} rounds, {len(noted(log))} transactions"


# What fsync promised.

def record(seed, number):
    data = random.Random(seed * 1000003 + number).randbytes(300 + number * 7 % 4000)
    return b"%08d %08x %05d\n" % (number, zlib.crc32(data), len(data)) + data


def durable_write(folder, log, seed, count, stop=None):
    """Record i is appended to a file of its hundred and synced; every tenth also replaces a file by
    rename; then its number is noted outside."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        if number and stop and os.path.exists(stop):
            break
        fd = os.open(f"{folder}/log-{number // 100}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        data = record(seed, number)
        need(os.write(fd, data) == len(data), "short write")
        os.fsync(fd)
        os.close(fd)
        if number % 100 == 0:
            os.fsync(directory)
        if number % 10 == 0:
            fd = os.open(f"{folder}/head.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            need(os.write(fd, data) == len(data), "short write")
            os.fsync(fd)
            os.close(fd)
            os.rename(f"{folder}/head.tmp", f"{folder}/head")
            os.fsync(directory)
        note(log, str(number))
    os.close(directory)
    return 0


def durable_check(folder, log, seed=None):
    """What was noted and is not there, or is not whole; "" when all is well."""
    seed = 22 if seed is None else seed
    numbers = [int(line) for line in noted(log)]
    if not numbers:
        return "nothing was noted"
    files = {}
    for number in numbers:
        name = f"{folder}/log-{number // 100}"
        if name not in files:
            if not os.path.exists(name):
                return f"{os.path.basename(name)} is missing"
            with open(name, "rb") as f:
                files[name] = f.read()
        if record(seed, number) not in files[name]:
            return f"record {number} is not in {os.path.basename(name)} of {len(files[name])} bytes"
    with open(f"{folder}/head", "rb") as f:
        head = f.read()
    if not head:
        return "head is empty"
    number = int(head[:8])
    if head != record(seed, number):
        return "head is neither old nor new"
    if number < max(n for n in numbers if n % 10 == 0):
        return f"head has record {number}, a later one was acknowledged"
    return ""


def durable_loop(folder, outside, seed, stop):
    log = os.path.join(outside, f"durable-{seed}.log")
    durable_write(folder, log, seed, 1 << 30, stop)
    wrong = durable_check(folder, log, seed)
    need(not wrong, wrong)
    return f"{len(noted(log))} records"


# git

GIT = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null", HOME="/nonexistent",
           GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@example.org", GIT_COMMITTER_NAME="a",
           GIT_COMMITTER_EMAIL="a@example.org", LC_ALL="C")


def tool(folder, *args, env=None):
    done = subprocess.run(args, cwd=folder, capture_output=True, text=True, check=False, env=env)
    need(done.returncode == 0, f"{' '.join(args)}: {done.returncode} {done.stdout[-800:]}"
         f"{done.stderr[-1500:]}")
    return done.stdout


def git(folder, *args):
    return tool(folder, "git", *args, env=GIT)


def git_change(rng, work):
    """Some files change, come and go; gives what the tree has to hold."""
    for _ in range(rng.randrange(3, 40)):
        name = f"{work}/d{rng.randrange(12)}/f{rng.randrange(60)}"
        if os.path.exists(name) and rng.randrange(4) == 0:
            os.unlink(name)
            continue
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as f:
            f.write(rng.randbytes(rng.randrange(1, 20000)))


def content_of(work):
    found = {}
    for top, dirs, files in os.walk(work):
        if ".git" in dirs:
            dirs.remove(".git")
        for name in files:
            path = os.path.join(top, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, work)] = zlib.crc32(f.read())
    return found


def git_loop(folder, outside, seed, stop):
    rng = random.Random(seed)
    bare, work = os.path.join(folder, "bare.git"), os.path.join(folder, "work")
    git(folder, "init", "-q", "--bare", "-b", "main", bare)
    git(folder, "clone", "-q", bare, work)
    rounds = 0
    while rounds == 0 or not os.path.exists(stop):
        git_change(rng, work)
        with open(f"{work}/round", "w", encoding="ascii") as f:
            f.write(str(rounds))
        git(work, "add", "-A")
        git(work, "commit", "-qm", f"round {rounds}")
        git(work, "push", "-q", "origin", "HEAD:main")
        note(os.path.join(outside, f"git-{seed}.log"), git(work, "rev-parse", "HEAD").strip())
        need(git(work, "status", "--porcelain") == "", "status is not clean after a commit")
        if rounds % 5 == 4:
            second = os.path.join(folder, "second")
            git(folder, "clone", "-q", bare, second)
            need(content_of(second) == content_of(work), "a clone has other bytes")
            shutil.rmtree(second)
        if rounds % 8 == 7:
            git(bare, "gc", "-q", "--prune=now")
            git(bare, "fsck", "--full", "--strict")
        rounds += 1
    for repository in (bare, work):
        git(repository, "fsck", "--full", "--strict")
    have = set(git(bare, "rev-list", "main").split())
    lost = [c for c in noted(os.path.join(outside, f"git-{seed}.log")) if c not in have]
    need(not lost, f"pushed commits are missing: {lost[:3]}")
    return f"{rounds} rounds"


# A compiler

def project(folder, parts, salt):
    os.makedirs(folder, exist_ok=True)
    for i in range(parts):
        with open(f"{folder}/part{i}.c", "w", encoding="ascii") as f:
            f.write(f"int part{i}(int x) {{ return x * {i} + {salt}; }}\n")
    with open(f"{folder}/main.c", "w", encoding="ascii") as f:
        f.write("#include <stdio.h>\n" + "".join(f"int part{i}(int);\n" for i in range(parts)) +
                "int main(void) { int s = 0;\n" + "".join(f"s += part{i}(3);\n" for i in range(parts)) +
                'printf("%d\\n", s); return 0; }\n')
    with open(f"{folder}/Makefile", "w", encoding="ascii") as f:
        f.write("O := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(O)\n\t$(CC) -g -o $@ $^\n"
                "%.o: %.c\n\t$(CC) -g -O1 -c -o $@ $<\nclean:\n\trm -f program *.o\n")
    return sum(3 * i + salt for i in range(parts))


def compiler_loop(folder, _outside, seed, stop):
    rounds = 0
    while not os.path.exists(stop):
        where = os.path.join(folder, f"p{rounds % 2}")
        want = project(where, 8, seed + rounds)
        tool(where, "make", "-s", "-j2")
        need(tool(where, "./program") == f"{want}\n", "the program gives something else")
        need(subprocess.run(["make", "-q"], cwd=where, check=False).returncode == 0,
             "make wants to build again")
        tool(where, "make", "-s", "clean")
        rounds += 1
    return f"{rounds} rounds"


# Names: many small files that come and go, with a full comparison of names and bytes.

def names_loop(folder, _outside, seed, stop):
    rng = random.Random(seed)
    have = {}
    rounds = 0
    while not os.path.exists(stop):
        for _ in range(200):
            name = f"d{rng.randrange(20)}/n{rng.randrange(200)}"
            path = os.path.join(folder, name)
            kind = rng.randrange(6)
            if kind == 0 and have:
                old = rng.choice(sorted(have))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.rename(os.path.join(folder, old), path)
                have[name] = have.pop(old)
            elif kind == 1 and have:
                old = rng.choice(sorted(have))
                os.unlink(os.path.join(folder, old))
                del have[old]
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                data = rng.randbytes(rng.randrange(0, 9000))
                with open(path, "wb") as f:
                    f.write(data)
                have[name] = zlib.crc32(data)
        rounds += 1
        if rounds % 5 == 0:
            need(content_of(folder) == have, "names or bytes differ")
    need(content_of(folder) == have, "names or bytes differ at the end")
    return f"{rounds} rounds, {len(have)} files"


LOOPS = {"git": git_loop, "compiler": compiler_loop, "durable": durable_loop, "names": names_loop,
         "sqlite-wal": lambda *a: sqlite_loop(*a, "wal"),
         "sqlite-delete": lambda *a: sqlite_loop(*a, "delete")}


def main():
    kind, folder, outside, seed, stop = sys.argv[1:]
    try:
        os.makedirs(folder)
        print(f"{kind} {seed}: {LOOPS[kind](folder, outside, int(seed), stop)}")
        return 0
    except Wrong as wrong:
        print(f"{kind} {seed}: {wrong}")
    except Exception:  # pylint: disable=broad-except
        print(f"{kind} {seed}: {traceback.format_exc()}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
