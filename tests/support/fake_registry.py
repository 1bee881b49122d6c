"""The fake registry as a process of one test (fake_registry.h says what it can be told and what it records)."""
import json
import os
import subprocess
import urllib.error
import urllib.request

import harness
from harness import Failed, run

PROGRAM = os.path.join(harness.BUILD, "tests", "support", "fake_registry")


def certificates(scratch, names="IP:127.0.0.1,DNS:localhost", days=2, name="server"):
    """An authority (made once per test) and a certificate of it, expired where `days` are negative; gives (ca, cert, key)."""
    ca, ca_key, cert, key, asked, rest = (scratch.path(n) for n in
                                          ("ca.pem", "ca.key", f"{name}.pem", f"{name}.key", f"{name}.csr", f"{name}.ext"))
    made = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if not os.path.exists(ca):
        run([*made, "-x509", "-days", "2", "-subj", "/CN=varve test ca", "-keyout", ca_key, "-out", ca])
    run([*made, "-subj", f"/CN=varve test {name}", "-keyout", key, "-out", asked])
    with open(rest, "w", encoding="utf-8") as f:
        f.write(f"subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n")
    run(["openssl", "x509", "-req", "-in", asked, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", str(days),
         "-extfile", rest, "-out", cert])
    return ca, cert, key


class FakeRegistry:
    """`tls` is what certificates() gave; settings and rules are as in fake_registry.h."""

    def __init__(self, scratch, rules=(), tls=None, client_ca=None, tls10=False, **settings):
        self.ca = tls[0] if tls else None
        args = [PROGRAM, "--config", json.dumps({"settings": settings, "rules": list(rules)})]
        if tls:
            args += ["--cert", tls[1], "--key", tls[2]]
        if client_ca:
            args += ["--client-ca", client_ca]
        if tls10:
            args += ["--tls10"]
        self.log = scratch.path(f"fake-{len(scratch.owned)}.log")
        with open(self.log, "wb") as log:
            self.process = scratch.popen(args, stdout=subprocess.PIPE, stderr=log)
        scratch.owned.append(self)
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the fake registry did not start: {harness.read_text(self.log)}")
        hosts = json.loads(line)
        self.host, self.other = hosts["main"], hosts["other"]
        self.scheme = "https" if tls else "http"
        self.url = f"{self.scheme}://{self.host}/varve"

    def ask(self, method, path, body=None):
        command = ["curl", "-sS", "--noproxy", "*", "-X", method, "--fail-with-body", f"{self.scheme}://{self.host}{path}"]
        if self.ca:
            command += ["--cacert", self.ca]
        if body is not None:
            command += ["--data-binary", "@-"]
        return run(command, input=body)

    def config(self, rules=(), **settings):
        """Replaces settings and rules; content stays."""
        self.ask("PUT", "/_fake/config", json.dumps({"settings": settings, "rules": list(rules)}))

    def forget(self, what):
        self.ask("POST", "/_fake/forget", what)

    def reset(self):
        """Forgets the records."""
        self.ask("POST", "/_fake/reset", "")

    def records(self, method=None, part=""):
        """What was asked, in order: with this method, and `part` in the address."""
        return [r for r in json.loads(self.ask("GET", "/_fake/log"))
                if (not method or r["method"] in method.split(",")) and part in r["target"]]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def faults(self):
        """Ends it; gives what it said, which is nothing unless it is broken itself."""
        self.stop()
        said = harness.read_text(self.log)
        return said if self.process.returncode == 0 else f"ended with {self.process.returncode}: {said}"
