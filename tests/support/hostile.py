"""Images that lie and registries that misbehave, for tests; shares no code with the product."""
import gzip
import hashlib
import http.server
import io
import json
import os
import socketserver
import subprocess
import tarfile
import threading

KIND = "application/vnd.oci.image."
TYPES = {"file": b"0", "hard": b"1", "link": b"2", "char": b"3", "block": b"4", "dir": b"5",
         "fifo": b"6"}


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def member(name, kind="file", data=b"", target="", mode=None, uid=0, gid=0, mtime=0, pax=None,
           device=(0, 0)):
    """One member for tar_of(); nothing in it is checked."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = TYPES[kind], len(data), target
    info.uid, info.gid, info.mtime = uid, gid, mtime
    info.mode = mode if mode is not None else (0o755 if kind == "dir" else 0o644)
    info.devmajor, info.devminor = device
    info.pax_headers = pax or {}
    return info, data


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def header(name, size=b"00000000000\0", kind=b"0", target=b""):
    """A bare ustar header, for what tarfile does not write."""
    block = bytearray(512)
    block[0:len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148], block[148:156] = size, b"00000000000\0", b" " * 8
    block[156:157] = kind
    block[157:157 + len(target)] = target
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def zstd(data):
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


PACKINGS = {"tar": (bytes, ""), "gzip": (gzip.compress, "+gzip"), "zstd": (zstd, "+zstd")}


class Image:
    """An image in memory: `layers` are [(tar, packing)] from the lowest up. What it says of them
    can be overridden, each list with one item per layer: the packed bytes, media types, sizes,
    digests, diff IDs."""

    def __init__(self, layers, config=None, architecture="amd64", packed=None, types=None,
                 sizes=None, digests=None, diff_ids=None):
        self.blobs = {}
        described = []
        for i, (tar, packing) in enumerate(layers):
            pack, suffix = PACKINGS[packing]
            data = packed[i] if packed else pack(tar)
            digest = digests[i] if digests else digest_of(data)
            self.blobs[digest] = data
            described.append({"digest": digest, "size": sizes[i] if sizes else len(data),
                              "mediaType": types[i] if types else f"{KIND}layer.v1.tar{suffix}"})
        if diff_ids is None:
            diff_ids = [digest_of(tar) for tar, _ in layers]
        config = self.put({"architecture": architecture, "os": "linux", "config": config or {},
                           "rootfs": {"type": "layers", "diff_ids": diff_ids},
                           "history": [{"created_by": "test"} for _ in layers]})
        self.layers = described
        self.config = config["digest"]
        self.manifest = self.put({
            "schemaVersion": 2, "mediaType": KIND + "manifest.v1+json",
            "config": dict(config, mediaType=KIND + "config.v1+json"), "layers": described})

    def put(self, document):
        data = json.dumps(document).encode()
        self.blobs[digest_of(data)] = data
        return {"digest": digest_of(data), "size": len(data)}

    def layout(self, path):
        """Writes it as an OCI image layout."""
        os.makedirs(f"{path}/blobs/sha256", exist_ok=True)
        for digest, data in self.blobs.items():
            with open(f"{path}/blobs/sha256/{digest[7:]}", "wb") as f:
                f.write(data)
        with open(f"{path}/oci-layout", "w", encoding="ascii") as f:
            f.write('{"imageLayoutVersion":"1.0.0"}')
        with open(f"{path}/index.json", "w", encoding="ascii") as f:
            json.dump({"schemaVersion": 2, "manifests": [
                dict(self.manifest, mediaType=KIND + "manifest.v1+json")]}, f)
        return path


class Registry:
    """Serves `images`, {repository: Image}, and does with a blob what `tricks`, {digest: function
    (handler, data)}, say. `gets` counts the requests for each blob."""

    def __init__(self):
        self.images = {}
        self.tricks = {}
        self.gets = {}
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                owner.answer(self, False)

            def do_GET(self):
                owner.answer(self, True)

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # clients that go away are a part of the tests

        self.server = Server(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, wants_body):
        parts = handler.path.split("?")[0].split("/")
        image = self.images.get("/".join(parts[2:-2]))
        name = parts[-1]
        if image and parts[-2] == "manifests" and not name.startswith("sha256:"):
            name = image.manifest["digest"]
        data = image.blobs.get(name) if image else None
        if data is None:
            return reply(handler, 200 if handler.path == "/v2/" else 404, b"{}", wants_body)
        if parts[-2] == "manifests":
            return reply(handler, 200, data, wants_body, KIND + "manifest.v1+json")
        if wants_body:
            self.gets[name] = self.gets.get(name, 0) + 1
        trick = self.tricks.get(name)
        if trick and wants_body:
            return trick(handler, data)
        return reply(handler, 200, data, wants_body)


def reply(handler, status, data, wants_body=True, kind="application/octet-stream"):
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if wants_body:
        handler.wfile.write(data)
