#!/usr/bin/env python3
"""Reads a detached volume as docs/FORMAT.md, "Volumes", describes it, sharing no code with the product.

usage: volume_image.py DIRECTORY IMAGE      DIRECTORY is DATA/volumes/ID

Writes the bytes that the volume has to a sparse file: `data`, with zeros where the disk map says zero,
whatever `data` holds there. Prints the map's generation, whether it was closed in an orderly way, and
how many chunks are in each state. Damage is an error.
"""
import json
import os
import struct
import sys

BLOCK, CHUNK = 4096, 65536
HEADER = struct.Struct("<8sII16sQQII")
RECORDS = struct.Struct("<4sIQQQH")
STATES = ("zero", "absent", "clean", "changed")


class Damaged(Exception):
    pass


def table():
    rows = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        rows.append(n)
    return rows


TABLE = table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def sound(block, at):
    """Whether a block has the checksum that stands at this offset."""
    have = struct.unpack_from("<I", block, at)[0]
    return have == crc32c(block[:at] + bytes(4) + block[at + 4:])


def records_of(block, generation, number):
    """(first block of its flush, records) of a valid block, or None."""
    magic, _, of, position, first, count = RECORDS.unpack_from(block)
    if magic != b"VRVB" or not sound(block, 4) or of != generation or position != number:
        return None
    if not 1 <= count <= 507:
        raise Damaged(f"block {number} has {count} records")
    return first, [struct.unpack_from("<IHBB", block, 40 + 8 * i) for i in range(count)]


def sealed(block, at):
    """The block with its checksum at this offset."""
    block = bytes(block) + bytes(BLOCK - len(block))
    block = block[:at] + bytes(4) + block[at + 4:]
    return block[:at] + struct.pack("<I", crc32c(block)) + block[at + 4:]


def write_map(path, uuid, size, chunks):
    """A closed map of a new volume: {number: (state, mask)} of what is not zero."""
    records = [struct.pack("<IHBB", n, mask, state, 0) for n, (state, mask) in sorted(chunks.items())]
    groups = [records[i:i + 507] for i in range(0, len(records), 507)]
    with open(path, "wb") as f:
        f.write(sealed(HEADER.pack(b"VRVMAP01", 0, 1, uuid, 1, size, len(groups), 1), 8))
        for number, group in enumerate(groups, 1):
            head = RECORDS.pack(b"VRVB", 0, 1, number, 1, len(group))
            f.write(sealed(head + bytes(40 - len(head)) + b"".join(group), 4))


def read_map(directory):
    """{"generation", "size", "closed", "torn", "chunks": {number: (state, mask)}}"""
    with open(os.path.join(directory, "map"), "rb") as f:
        data = f.read()
    with open(os.path.join(directory, "volume.json"), encoding="utf-8") as f:
        description = json.load(f)
    blocks = [data[i:i + BLOCK] for i in range(0, len(data) - BLOCK + 1, BLOCK)]
    if not blocks:
        raise Damaged("no header")
    magic, _, version, uuid, generation, size, base, flags = HEADER.unpack_from(blocks[0])
    if magic != b"VRVMAP01" or not sound(blocks[0], 8):
        raise Damaged("the header")
    if version != 1 or uuid.hex() != description["uuid"].replace("-", ""):
        raise Damaged(f"version {version} or UUID {uuid.hex()}")
    chunks, end, last = {}, len(blocks), 1
    for number in range(1, len(blocks)):
        found = records_of(blocks[number], generation, number)
        if not found or (number > base and found[0] not in (number, last)):
            end = number
            break
        last = found[0]
        for chunk, mask, state, _ in found[1]:
            if state > 3 or chunk * CHUNK >= description["size"]:
                raise Damaged(f"a record of chunk {chunk}, state {state}")
            chunks[chunk] = (state, mask)
    if end <= base:
        raise Damaged(f"block {end} of {base} of the base")
    torn = False
    for number in range(end, len(blocks)):
        found = records_of(blocks[number], generation, number)
        if found and found[0] not in (end, last):
            raise Damaged(f"block {number} behind the end at {end}")
        torn = torn or found is not None
    return {"generation": generation, "size": size, "closed": bool(flags & 1) and end == base + 1,
            "torn": torn, "chunks": chunks}


def write_image(directory, image):
    """The volume's bytes as a file; gives what read_map() gives."""
    found = read_map(directory)
    source = os.open(os.path.join(directory, "data"), os.O_RDONLY)
    target = os.open(image, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.ftruncate(target, os.fstat(source).st_size)
        for chunk, (state, _) in found["chunks"].items():
            if state == 1:
                raise Damaged(f"chunk {chunk} is absent")
            if state:
                bytes_here = os.pread(source, CHUNK, chunk * CHUNK)
                if bytes_here.count(0) != len(bytes_here):
                    os.pwrite(target, bytes_here, chunk * CHUNK)
    finally:
        os.close(source)
        os.close(target)
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = write_image(sys.argv[1], sys.argv[2])
    states = [STATES[state] for state, _ in found["chunks"].values()]
    counts = ", ".join(f"{states.count(name)} {name}" for name in STATES if name in states)
    print(f"generation {found['generation']}, {'closed' if found['closed'] else 'open'}, {counts}")


if __name__ == "__main__":
    main()
