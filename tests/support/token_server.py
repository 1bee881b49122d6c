"""A token host for docker-registry's `auth: token` (distribution's token specification), in threads of the test: signed tokens for
those who may, by GET with Basic and by the OAuth2 form. Stock clients (skopeo) use it, too."""
import base64
import http.server
import json
import os
import subprocess
import threading
import time
import urllib.parse

from harness import run

SERVICE, ISSUER = "varve-test-registry", "varve-test-issuer"


def plain(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenServer:
    """`users` is {name: password}, `identities` {identity token: name}. Everybody may pull what is below `public`; users may
    push and pull, but for repositories with `closed` in their name. `asked` lists (method, user, scopes, status)."""

    def __init__(self, scratch, users, identities=None, public="public/", closed="closed"):
        self.users = users
        self.identities = identities or {}
        self.public = public
        self.closed = closed
        self.asked = []
        self.key, self.cert = scratch.path("token.key"), scratch.path("token.pem")
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=varve test tokens",
             "-keyout", self.key, "-out", self.cert])
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        scratch.owned.append(self)

    @property
    def realm(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/token"

    def config(self):
        """The part of docker-registry's configuration."""
        return (f"auth:\n  token:\n    realm: {self.realm}\n    service: {SERVICE}\n    issuer: {ISSUER}\n"
                f"    rootcertbundle: {self.cert}\n")

    def sign(self, payload):
        with open(self.cert, encoding="utf-8") as f:
            chain = ["".join(f.read().split("-----")[2].split())]
        parts = [plain(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "RS256", "x5c": chain}, payload)]
        text = ".".join(parts)
        made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=text.encode(), capture_output=True, check=True)
        return f"{text}.{plain(made.stdout)}"

    def granted(self, user, scopes):
        """What of the scopes somebody gets."""
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":", 1)[0], scope.split(":", 1)[1].rsplit(":", 1)[0], scope.rsplit(":", 1)[1]
            wanted = actions.split(",")
            if user and self.closed not in name:
                access.append({"type": kind, "name": name, "actions": wanted})
            elif name.startswith(self.public):
                access.append({"type": kind, "name": name, "actions": [a for a in wanted if a == "pull"]})
        return access

    def token(self, user, scopes):
        now = int(time.time())
        return self.sign({"iss": ISSUER, "sub": user or "", "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now,
                          "jti": os.urandom(8).hex(), "access": self.granted(user, scopes)})

    def login(self, value):
        """The user of an Authorization header; None for nobody, False for a wrong password."""
        if not value:
            return None
        name, _, password = base64.b64decode(value.split(" ", 1)[1]).decode().partition(":")
        return name if self.users.get(name) == password else False

    def handler(outer):  # pylint: disable=no-self-argument
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, document):
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def give(self, user, scopes, field):
                outer.asked.append((self.command, user, sorted(scopes), 401 if user is False else 200))
                if user is False:
                    self.answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "who are you?"}]})
                else:
                    self.answer(200, {field: outer.token(user, scopes), "expires_in": 300})

            def do_GET(self):  # pylint: disable=invalid-name
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
                self.give(outer.login(self.headers.get("Authorization")), query.get("scope", []), "token")

            def do_POST(self):  # pylint: disable=invalid-name
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                user = outer.identities.get(form.get("refresh_token", [""])[0], False)
                self.give(user, form.get("scope", [""])[0].split(), "access_token")

            def log_message(self, *args):  # pylint: disable=arguments-differ
                pass

        return Handler

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
