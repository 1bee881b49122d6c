"""OCI image layouts made by hand, layer by layer; shares no code with the product."""
import hashlib
import json
import os
import subprocess

KIND = "application/vnd.oci.image."
PACKING = {"zstd": ("zstd -q -3 -T2", "+zstd"), "gzip": ("gzip -6", "+gzip"), "tar": ("cat", "")}


def digest_of(path):
    out = subprocess.run(["openssl", "dgst", "-sha256", "-r", path], check=True,
                         capture_output=True, text=True).stdout
    return "sha256:" + out.split()[0]


def _put(blobs, document):
    data = json.dumps(document).encode()
    name = hashlib.sha256(data).hexdigest()
    with open(os.path.join(blobs, name), "wb") as f:
        f.write(data)
    return {"digest": "sha256:" + name, "size": len(data)}


def _layer(path, blobs, tar, packing):
    """Stores one layer; gives its descriptor."""
    command, suffix = PACKING[packing]
    packed = os.path.join(path, "layer")
    with open(tar, "rb") as source, open(packed, "wb") as target:
        subprocess.run(command.split(), stdin=source, stdout=target, check=True)
    digest = digest_of(packed)
    size = os.path.getsize(packed)
    os.rename(packed, os.path.join(blobs, digest.split(":")[1]))
    return {"mediaType": f"{KIND}layer.v1.tar{suffix}", "digest": digest, "size": size}


def make(path, layers, name="it", config=None, diff_ids=None):
    """Makes a layout with one image of `layers`, [(tar, packing)] from the lowest up, and gives the
    layers' descriptors. `config` is the runtime part of the image's config; `diff_ids` overrides
    what it says of the layers."""
    blobs = os.path.join(path, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)
    descriptors = [_layer(path, blobs, tar, packing) for tar, packing in layers]
    config = _put(blobs, {
        "architecture": "amd64", "os": "linux", "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": diff_ids or [digest_of(tar) for tar, _ in layers]},
        "history": [{"created_by": "test"} for _ in layers]})
    manifest = _put(blobs, {
        "schemaVersion": 2, "mediaType": KIND + "manifest.v1+json",
        "config": dict(config, mediaType=KIND + "config.v1+json"), "layers": descriptors})
    with open(os.path.join(path, "oci-layout"), "w", encoding="ascii") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    with open(os.path.join(path, "index.json"), "w", encoding="ascii") as f:
        json.dump({"schemaVersion": 2, "manifests": [
            dict(manifest, mediaType=KIND + "manifest.v1+json",
                 annotations={"org.opencontainers.image.ref.name": name})]}, f)
    return descriptors
