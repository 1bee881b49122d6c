"""Pushes and pulls against skopeo and podman, over loopback to Debian's docker-registry.

Layers hold random bytes, so that nothing but moving them costs. skopeo moves blobs from or to an
OCI layout and syncs nothing; podman's pull unpacks the layers and keeps no blob; varve's pull keeps
the blobs and turns each layer into a file system image, both synced, and its push asks for every
blob once more at the end. Each push goes to a registry without a blob, each pull to an empty node.
"""
import os
import shutil

import layouts
from bench_groups import note
from measure import Case, group, shell

MIB = 1 << 20
SHAPES = {"one layer of 1 GiB": (1, 1024), "ten layers of 100 MiB": (10, 100)}


def make_layout(site, label, count, size_mib):
    note(f"making {label}")
    tars = []
    for number in range(count):
        tree = site.path(f"tree-{number}")
        os.makedirs(tree)
        shell(f"head -c {size_mib * MIB} /dev/urandom > {tree}/data{number}; "
              f"tar --sort=name --numeric-owner -C {tree} -cf {tree}.tar .; rm -r {tree}")
        tars.append(f"{tree}.tar")
    layout = site.path("layout-registry")
    shutil.rmtree(layout, ignore_errors=True)
    layouts.make(layout, [(tar, "zstd") for tar in tars])
    for tar in tars:
        os.unlink(tar)
    return layout


def fresh_registry(site):
    if site.registry:
        site.registry.stop()
        shutil.rmtree(site.registry.storage, ignore_errors=True)
    return site.start_registry()


class Pushes:
    """Both ways to bring the image of a layout into an empty registry; {host} changes each time."""

    def __init__(self, site, layout):
        self.site, self.layout = site, layout
        self.skopeo = Case("skopeo copy", "", self.before_skopeo)
        self.varve = Case("varve snapshot push", "", self.before_varve, after=site.stop_node)

    def before_skopeo(self):
        host = fresh_registry(self.site).host
        self.skopeo.command = ("skopeo copy -q --preserve-digests --dest-tls-verify=false "
                               f"oci:{self.layout}:it docker://{host}/varve/images/b:1")

    def before_varve(self):
        fresh_registry(self.site)
        node = self.site.start_node()
        node.ok("image", "import", self.layout, "--name", "b:1")
        node.ok("run", "create", "b:1", "--id", "r")
        snapshot = node.ok("snapshot", "create", "--run", "r", "--name", "b:2")
        self.varve.command = f"{self.site.varve} snapshot push {snapshot['id']}"


def registry(site, rounds):
    """A large layer and ten layers, each way."""
    for label, (count, size_mib) in SHAPES.items():
        layout = make_layout(site, label, count, size_mib)
        site.fresh_disk(direct=True)
        pushes = Pushes(site, layout)
        group(f"Push of {label}", [pushes.skopeo, pushes.varve], rounds)
        host = fresh_registry(site).host
        site.push(layout, "bench")
        environment = site.podman_environment()
        target = os.path.join(site.disk, "copy")
        copy = ("skopeo copy -q --preserve-digests --src-tls-verify=false "
                f"docker://{host}/varve/bench:1 oci:{target}:it")

        def clear(target=target):
            shell(f"rm -rf {target}")

        def node(environment=environment):
            site.start_node()
            environment["VARVE_HOST"] = os.environ["VARVE_HOST"]

        def forget(environment=environment):
            shell("podman image rm -af; rm -rf /var/lib/containers/cache/blob-info-cache*", env=environment)
        group(f"Pull of {label}", [
            Case("skopeo copy", copy, clear),
            Case("the same, and sync", f"{copy}; sync -f {target}", clear),
            Case("podman pull", f"podman pull -q --tls-verify=false {host}/varve/bench:1", forget),
            Case("varve image pull", f"{site.varve} image pull {host}/varve/bench:1",
                 node, after=site.stop_node),
        ], rounds, environment=environment)
        shell(f"rm -rf {target}")


GROUPS = {"registry": registry}
