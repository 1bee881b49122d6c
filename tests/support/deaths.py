"""Kills that count: each of a process that was in use, and that has died of it.

Processes that are not children of a test are known by pidfds, which are never another process's; that a worker is in
use is read from the live map's header (fuse/format/live_map.h).
"""
import os
import select
import signal
import struct
from collections import Counter

from harness import check, processes, wait_for

LIVE_FD = 4   # of a worker
HEADER = struct.Struct("<4xIQ")  # pid, starts
HEADER_AT = 592


class LiveMap:
    """The header of the live map that a worker holds."""

    def __init__(self, fd):
        self.fd = fd
        self.counted = 0  # workers that had begun when the last one was killed

    def look(self):
        """(pid of the worker, how many have begun to serve)"""
        return HEADER.unpack(os.pread(self.fd, HEADER.size, HEADER_AT))

    def serves(self, pid):
        """Whether this worker has begun to serve, and is not one that has been counted."""
        holder, starts = self.look()
        return holder == pid and starts > self.counted

    def count(self):
        self.counted = self.look()[1]


def live_map_of(pid):
    return LiveMap(os.open(f"/proc/{pid}/fd/{LIVE_FD}", os.O_RDONLY))


def is_over(fd):
    return bool(select.select([fd], [], [], 0)[0])


def kill_living(pids, number=signal.SIGKILL):
    """Kills them at one moment; gives how many lived until then, when all of these are dead."""
    fds, count = [], 0
    try:
        for pid in pids:
            try:
                fds.append(os.pidfd_open(pid))
            except ProcessLookupError:
                continue
        living = [fd for fd in fds if not is_over(fd)]
        for fd in living:
            try:
                signal.pidfd_send_signal(fd, number)
                count += 1
            except ProcessLookupError:
                pass
        for fd in living:
            wait_for(lambda f=fd: is_over(f), 20, "death of a process that was killed")
    finally:
        for fd in fds:
            os.close(fd)
    return count


class Deaths:
    """Counts those of the workers of one volume, of a keeper and a varved. `find`, of "worker", "keeper" or "varved",
    gives the pids."""

    def __init__(self, find):
        self.find = find
        self.counts = Counter()
        self.live = None
        self.last = {}

    def in_use(self, who):
        """Its pid, or None while there is none, or one that serves nobody yet, or the one that was killed."""
        pids = self.find(who)
        if len(pids) != 1 or pids[0] == self.last.get(who):
            return None
        if who != "worker":
            return pids[0] if has_fuse(pids[0]) else None
        try:
            self.live = self.live or live_map_of(pids[0])
        except OSError:
            return None
        return pids[0] if self.live.serves(pids[0]) else None

    def await_use(self, who):
        return wait_for(lambda: self.in_use(who), 30, f"one {who} that is in use")

    def kill(self, *names, pause=lambda: None):
        """Kills these at one moment, some time after they are in use. They have died of it, each of them."""
        for who in names:
            self.await_use(who)
        pause()
        pids = {who: self.await_use(who) for who in names}
        if "worker" in pids:
            self.live.count()
        if len(pids) == 3:
            for pid in pids.values():
                os.kill(pid, signal.SIGSTOP)  # else the last one replaces the first one in between
        dead = kill_living(pids.values())
        check(dead == len(pids), f"{dead} of {pids} were killed")
        self.last.update(pids)
        self.counts.update(names)
        if len(names) == 3:
            self.forget()

    def kill_young(self):
        """Kills what there is of a worker just now. Counts it apart, if it had not begun to serve."""
        pids = self.find("worker")
        serving = self.in_use("worker") in pids
        if serving:
            self.live.count()
        dead = kill_living(pids)
        if dead:
            self.last["worker"] = pids[0]
            self.counts["worker" if serving else "starting worker"] += 1

    def forget(self):
        """The volume gets another live map."""
        if self.live:
            os.close(self.live.fd)
        self.live = None


def has_fuse(pid):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}") == "/dev/fuse":
                return True
    except OSError:
        pass
    return False


def of_node(node, volume=""):
    """The deaths of one node's processes."""
    def find(who):
        if who == "varved":
            return [node.process.pid] if node.process else []
        return processes("varve-keeper", node.run_dir) if who == "keeper" else \
            processes("varve-volume", f"{node.data}/volumes/{volume}")
    return Deaths(find)
