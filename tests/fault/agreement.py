"""Whether catalog and disk of a node agree, read with sqlite3 and the file system alone."""
import glob
import hashlib
import json
import os
import sqlite3

from harness import check, check_equal

FINAL = ("done", "failed", "cancelled")


def rows(node, query):
    database = sqlite3.connect(f"file:{node.data}/catalog.db?mode=ro", uri=True, timeout=30)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


# What varved does with files of its own at times of its own.
OWN_FILES = ("catalog.db", "volumes-reserve", "lock")


def tree_of(node, but=()):
    """{name: size} of all files below DATA, of directories None; without those that begin with what is in `but`."""
    found = {}
    for path, folders, files in os.walk(node.data):
        for name in folders + files:
            full = os.path.join(path, name)
            at = os.path.relpath(full, node.data)
            if not at.startswith(OWN_FILES + tuple(but)):
                found[at] = None if os.path.isdir(full) else os.lstat(full).st_size
    return found


def blobs_on_disk(layout):
    found = {}
    for name in os.listdir(f"{layout}/blobs/sha256"):
        with open(f"{layout}/blobs/sha256/{name}", "rb") as f:
            found[f"sha256:{name}"] = hashlib.sha256(f.read()).hexdigest()
    return found


def blobs_of_images(node, layout):
    wanted = set()
    for (digest,) in rows(node, "SELECT digest FROM images"):
        wanted.add(digest)
        path = f"{layout}/blobs/sha256/{digest[7:]}"
        check(os.path.exists(path), f"the manifest {digest} of an image is gone")
        with open(path, encoding="utf-8") as f:
            manifest = json.load(f)
        wanted.add(manifest["config"]["digest"])
        wanted.update(layer["digest"] for layer in manifest["layers"])
    return wanted


def check_blobs(node):
    layout = os.path.join(node.data, "layout")
    have = blobs_on_disk(layout)
    for digest, computed in have.items():
        check_equal(f"sha256:{computed}", digest, "digest of a blob on disk")
    wanted = blobs_of_images(node, layout)
    check_equal(sorted(wanted - have.keys()), [], "blobs that images name and disk lacks")
    check_equal(sorted(have.keys() - wanted), [], "blobs on disk that no image names")
    check_equal(sorted(n for n in os.listdir(f"{layout}/.varve") if n.startswith(".tmp-")), [],
                "temporary blobs")
    with open(f"{layout}/index.json", encoding="utf-8") as f:
        entries = json.load(f)["manifests"]
    named = sorted((e["annotations"]["org.opencontainers.image.ref.name"], e["digest"])
                   for e in entries if "annotations" in e)
    check_equal(named, sorted(rows(node, "SELECT name, digest FROM image_names "
                                     "JOIN images ON images.id = image")),
                "names in index.json and in the catalog")


def check_layers(node):
    """Each file of DATA/layers has a row with its size and a layer that needs it; nothing else."""
    keys = {"chain-" + c[7:] for (c,) in rows(node, "SELECT chain_id FROM layers "
                                              "JOIN image_layers ON layer = layers.id")}
    keys |= {"diff-" + d[7:] for (d,) in rows(node, "SELECT diff_id FROM layers "
                                              "JOIN image_layers ON layer = layers.id")}
    folder = os.path.join(node.data, "layers")
    have = {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}
    check_equal(sorted(have.keys() - keys), [], "layer images that no image has")
    check_equal(sorted(have.items()), sorted(rows(node, "SELECT key, bytes FROM layer_images")),
                "files of layer images and their rows")


def keys_of_runs(node):
    """Names in DATA/layers of the layers that runs stand on."""
    have = set(os.listdir(os.path.join(node.data, "layers")))
    wanted = set()
    for diff_id, chain_id in rows(node, "SELECT diff_id, chain_id FROM runs "
                                  "JOIN images ON images.digest = runs.image "
                                  "JOIN image_layers ON image_layers.image = images.id "
                                  "JOIN layers ON layers.id = layer"):
        keys = {"diff-" + diff_id[7:], "chain-" + chain_id[7:]} & have
        check_equal(len(keys), 1, f"images of the layer {diff_id} of a run")
        wanted |= keys
    return wanted


def check_layer_mounts(node):
    """What is mounted below RUN/layers is what runs stand on, once each, and no loop device is left
    of anything else."""
    below = os.path.join(node.run_dir, "layers") + "/"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        mounted = sorted(p[len(below):] for p in (line.split()[4] for line in f)
                         if p.startswith(below))
    check_equal(mounted, sorted(keys_of_runs(node)), "mounted layers and those of runs")
    check_equal(sorted(os.listdir(below)), mounted, "directories for mounts of layers")
    backing = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                backing.append(f.read().strip())
        except OSError:
            continue  # it went away meanwhile
    own = sorted(os.path.basename(b) for b in backing if b.startswith(node.data + "/"))
    check_equal([b for b in own if b not in mounted], [], "loop devices of what is not mounted")


def check_runs(node):
    have = set(os.listdir(os.path.join(node.data, "runs")))
    known = {i for (i,) in rows(node, "SELECT id FROM runs")}
    plain = {i for (i,) in rows(node, "SELECT id FROM runs WHERE upper = 'plain'")}
    check_equal(sorted(have), sorted(plain), "directories of runs and their rows")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        points = {line.split()[4] for line in f}
    for run_id in known:
        check(os.path.join(node.run_dir, "runs", run_id, "rootfs") in points,
              f"run {run_id} is not mounted")
    below = os.path.join(node.run_dir, "runs") + "/"
    mounted = {p[len(below):].split("/")[0] for p in points if p.startswith(below)}
    check_equal(sorted(mounted - known), [], "mounts of runs that are not in the catalog")


def check_workspaces(node):
    """Each workspace is what its row says, nothing is half done, and nothing is attached or lies on
    the disk that no row speaks of."""
    known = dict(rows(node, "SELECT id, state FROM volumes"))
    check_equal(sorted(i for (i,) in rows(node, "SELECT volume FROM workspaces UNION ALL "
                                          "SELECT volume FROM runs WHERE volume IS NOT NULL")), sorted(known),
                "volumes of workspaces and runs, and volumes")
    unsettled = {i: s for i, s in known.items() if s not in ("detached", "attached", "fenced")}
    check_equal(unsettled, {}, "volumes that are half way to somewhere")
    names = [n for n in os.listdir(os.path.join(node.data, "volumes")) if not n.startswith(".")]
    check_equal(sorted(names), sorted(known), "directories of volumes and their rows")
    wishes = {v: (path, state) for v, path, state in
              rows(node, "SELECT volume, path, state FROM mounts")}
    served = sorted(i for i, s in known.items() if s != "detached")
    check_equal(sorted(wishes), served, "mounts in the catalog and volumes that are served")
    below = os.path.join(os.path.realpath(node.run_dir), "volumes") + "/"
    devices, sessions = {}, []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            words = line.split()
            devices.setdefault(words[4], []).append(words[2])
            if words[4].startswith(below):
                sessions.append(words[4][len(below):])
    check_equal(sorted(sessions), served, "FUSE mounts and volumes that are served")
    backing = {}
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                file = f.read().strip()
            with open(os.path.join(os.path.dirname(path), "..", "dev"), encoding="utf-8") as f:
                if file.startswith(below):
                    backing[file[len(below):].split("/")[0]] = f.read().strip()
        except OSError:
            continue  # it went away meanwhile
    check_equal(sorted(backing), served, "loop devices and volumes that are served")
    for volume, (path, state) in wishes.items():
        check_equal(state, "mounted", f"state of the mount at {path}")
        check(backing[volume] in devices.get(path, []), f"{path} is not the volume {volume}")


def check_agreement(node):
    """Fails the test unless every job is final and catalog, disk and mounts say the same."""
    unfinished = rows(node, "SELECT id, kind, state FROM jobs WHERE state NOT IN "
                      "('done', 'failed', 'cancelled')")
    check_equal(unfinished, [], "unfinished jobs")
    silent = rows(node, "SELECT id, kind FROM jobs WHERE state = 'failed' AND "
                  "(error_code IS NULL OR error_message IS NULL OR error_message = '')")
    check_equal(silent, [], "failed jobs without a reason")
    check_blobs(node)
    check_layers(node)
    check_runs(node)
    check_layer_mounts(node)
    check_workspaces(node)
    left = os.listdir(os.path.join(node.data, "tmp"))
    check_equal(left, [], "what is left in the directory for temporary files")
    check_equal(rows(node, "SELECT * FROM leases"), [], "leases of ended jobs")
