"""Deterministic trees to make images of.

The text is made of words with a frequency like that of source code, so that it shrinks to about a
third, as the files of a Python or Node environment do.
"""
import io
import os
import random
import tarfile

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
