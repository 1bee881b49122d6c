#!/usr/bin/env python3
"""Power cuts on a mounted workspace, from a recording of everything its worker did to the volume's files
(tests/support/recorder.h, replay.py), with kills of the worker among it.

After each cut the volume opens, the ext4 on it mounts, everything that was promised is there, and e2fsck finds
nothing.
"""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import deaths  # noqa: E402  pylint: disable=wrong-import-position
import durable_work  # noqa: E402  pylint: disable=wrong-import-position
import replay  # noqa: E402  pylint: disable=wrong-import-position
from harness import LONG, check, main  # noqa: E402  pylint: disable=wrong-import-position
from recorded_node import RecordedNode, Replay, save_start  # noqa: E402  pylint: disable=wrong-import-position

SIZE = 256 << 20
SYNCS = 600 if LONG else 40  # of data and map, in the recording
KILLS = 15 if LONG else 3     # of workers in use, spread over it


def replay_all(player, entries, seed):
    """A cut at the end of every sync, and as many again anywhere."""
    chance = random.Random(seed)
    near, some = replay.places(entries, seed)
    near = near if LONG else near[::max(1, len(near) // 8)]
    begun = time.monotonic()
    for place in sorted(near + some):
        player.cut(place, chance)
    return f"{len(near)} cuts about names, {len(some)} others, {time.monotonic() - begun:.0f} s"


def test_mounted(scratch):
    node = RecordedNode(scratch, "n1").start()
    volume_id = node.ok("workspace", "create", "w", "--size", str(SIZE))["id"]
    start = save_start(scratch, os.path.join(node.data, "volumes", volume_id))
    path = scratch.path("mnt")
    os.mkdir(path)
    node.ok("workspace", "mount", "w", path)
    work_on(node, volume_id, path)
    node.ok("workspace", "unmount", "w")
    entries = replay.read_log(node.recording)
    player = Replay(scratch, entries, start)
    said = replay_all(player, entries, 20261129)
    syncs = sum(e.kind == "s" for e in entries)
    print(f"# {len(entries)} records, {syncs} syncs, {len(player.promises.notes)} promises; {said}")
    check(syncs >= SYNCS and len(player.promises.notes) >= SYNCS / 4, "there were hardly any promises")


class Syncs:
    """How many have ended in a recording that grows."""

    def __init__(self, recording):
        self.file = open(recording, "rb")  # pylint: disable=consider-using-with
        self.ended = 0

    def count(self):
        while len(record := self.file.read(replay.ENTRY.size)) == replay.ENTRY.size:
            self.ended += record[4:5] == b"s"
        self.file.seek(-len(record), os.SEEK_CUR)
        return self.ended


def work_on(node, volume_id, path):
    """The work, until it has been long enough, with kills of the worker on the way."""
    killed = deaths.of_node(node, volume_id)
    work = durable_work.Work(path, replay.Notes(node.recording))
    work.start()
    end, kills, syncs = time.monotonic() + 300, 0, Syncs(node.recording)
    while time.monotonic() < end and not work.failures and (syncs.count() < SYNCS or kills < KILLS):
        if syncs.ended >= SYNCS * (kills + 1) // (KILLS + 1) and kills < KILLS:
            killed.kill("worker")
            kills += 1
        time.sleep(0.002)
    failures = work.stop()
    check(not failures, f"the work failed: {failures}")
    check(kills == KILLS and killed.counts["worker"] == KILLS, f"deaths: {killed.counts}")


if __name__ == "__main__":
    main(globals())
