"""Deterministic trees and the images made of them.

The text is made of words with a frequency like that of source code, so that it shrinks to about a
third, as the files of a Python or Node environment do.
"""
import hashlib
import json
import os
import random
import subprocess

from measure import shell

TEXT_POOL = 48 << 20  # far more than a compressor's window, so slices of it are new to it


def text_pool(rng):
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz_", k=rng.randint(2, 11)))
             for _ in range(6000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    joints = [b" ", b" ", b"\n    ", b"(", b") ", b", ", b" = ", b"."]
    pieces = []
    size = 0
    while size < TEXT_POOL:
        for word in rng.choices(words, weights, k=20000):
            joint = joints[rng.randrange(len(joints))]
            pieces.append(word + joint)
            size += len(word) + len(joint)
    return b"".join(pieces)


def file_sizes(rng, files, total):
    """Mostly small files and a few large ones, `total` bytes together."""
    sizes = [int(rng.lognormvariate(8.2, 1.4)) for _ in range(files - files // 200)]
    rest = max(total - sum(sizes), files)
    sizes += [max(1, int(rest * 200 / files))] * (files // 200)
    return sizes


def agent_tree(root, files=20000, total=420 << 20, seed=1):
    """A root filesystem of an agent's environment: busybox and many files under opt/."""
    rng = random.Random(seed)
    pool = text_pool(rng)
    directories = [os.path.join(root, "opt", f"p{i % 97}", f"m{i}") for i in range(files // 12)]
    for path in directories:
        os.makedirs(path, exist_ok=True)
    for number, size in enumerate(file_sizes(rng, files, total)):
        path = os.path.join(directories[rng.randrange(len(directories))], f"f{number}.py")
        with open(path, "wb") as f:
            if number % 9 == 0:
                f.write(rng.randbytes(size // 2))
                size -= size // 2
            while size > 0:
                start = rng.randrange(len(pool) - 4096)
                piece = pool[start:start + min(size, 1 << 20)]
                f.write(piece)
                size -= len(piece)
        if number % 50 == 0:
            os.setxattr(path, "user.agent.step", str(number).encode())
    busybox(root)


def many_files_tar(path, count):
    """A tar of `count` files of a few bytes, written without a tree."""
    import io
    import tarfile
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(count):
            if number % 500 == 0:
                info = tarfile.TarInfo(f"d{number // 500}")
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            info = tarfile.TarInfo(f"d{number // 500}/f{number}")
            body = f"{number}\n".encode()
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))


def busybox(root):
    for name in ("bin", "tmp", "etc", "proc", "dev", "sys", "root"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    shell(f"cp /bin/busybox {root}/bin/busybox")
    for name in ("sh", "true", "ls", "cat", "rm", "tar", "find"):
        os.symlink("busybox", os.path.join(root, "bin", name))


def digest_of(path):
    return "sha256:" + subprocess.run(["openssl", "dgst", "-sha256", "-r", path], check=True,
                                      capture_output=True, text=True).stdout.split()[0]


PACKING = {"zstd": ("zstd -q -3 -T2", "+zstd"), "gzip": ("gzip -6", "+gzip"), "tar": ("cat", "")}


def oci_layout(path, tar, packing):
    """An OCI image layout with one layer, the tar, under the name "bench"."""
    blobs = os.path.join(path, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)
    command, suffix = PACKING[packing]
    layer = os.path.join(path, "layer")
    shell(f"{command} < {tar} > {layer}")

    def put(document):
        data = json.dumps(document).encode()
        name = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, name), "wb") as f:
            f.write(data)
        return {"digest": "sha256:" + name, "size": len(data)}

    config = put({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/sh"]},
                  "rootfs": {"type": "layers", "diff_ids": [digest_of(tar)]},
                  "history": [{"created_by": "bench"}]})
    digest = digest_of(layer)
    size = os.path.getsize(layer)
    os.rename(layer, os.path.join(blobs, digest.split(":")[1]))
    kind = "application/vnd.oci.image."
    manifest = put({"schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
                    "config": dict(config, mediaType=kind + "config.v1+json"),
                    "layers": [{"mediaType": kind + "layer.v1.tar" + suffix, "digest": digest,
                                "size": size}]})
    with open(os.path.join(path, "oci-layout"), "w", encoding="ascii") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    with open(os.path.join(path, "index.json"), "w", encoding="ascii") as f:
        json.dump({"schemaVersion": 2, "manifests": [
            dict(manifest, mediaType=kind + "manifest.v1+json",
                 annotations={"org.opencontainers.image.ref.name": "bench"})]}, f)
    return {"layer": digest, "size": size}
