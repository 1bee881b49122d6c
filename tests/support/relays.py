"""What stands between a node and a registry in tests, in threads of the test: a relay that counts and cuts connections, and a
proxy for CONNECT (RFC 9110, 9.3.6)."""
import base64
import socket
import threading

PIECE = 65536


def connect(target):
    """A connection to "host:port" or to the path of a socket."""
    if target.startswith("/"):
        link = socket.socket(socket.AF_UNIX)
        link.connect(target)
        return link
    host, port = target.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def end(*links):
    for link in links:
        try:
            link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Relay:
    """Hands every connection on to `target`. `cuts` lists after how many bytes of answers (all connections together) the
    connections that are open are cut, one after the other; `taken` counts connections. A request that is longer than `request_max`
    bytes breaks off there, as with a limit on its time; `broken` counts those."""

    def __init__(self, scratch, target, cuts=(), request_max=None):
        self.target = target
        self.request_max = request_max
        self.broken = 0
        self.cuts = list(cuts)
        self.taken = 0
        self.answered = 0
        self.links = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        scratch.owned.append(self)

    def accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.taken += 1
                self.links.append(link)
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        """One connection from its beginning to its end."""
        try:
            self.pass_on(link, connect(self.target))
        except OSError:
            end(link)
        link.close()

    def pass_on(self, link, there):
        """Bytes of both directions until both have ended."""
        with self.lock:
            self.links.append(there)
        asked = [0]  # bytes since the last answer
        back = threading.Thread(target=self.copy, args=(there, link, asked, True), daemon=True)
        back.start()
        self.copy(link, there, asked, False)
        back.join()
        there.close()

    def copy(self, source, sink, asked, answers):
        try:
            while data := source.recv(PIECE):
                asked[0] = 0 if answers else asked[0] + len(data)
                if self.request_max and asked[0] > self.request_max:
                    self.broken += 1
                    raise OSError("a request that is too long")
                sink.sendall(data)
                if answers:
                    self.count(len(data))
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            end(source, sink)

    def count(self, size):
        """Counts bytes of answers; cuts all connections when it is time."""
        with self.lock:
            self.answered += size
            due = bool(self.cuts) and self.answered >= self.cuts[0]
            if due:
                self.cuts.pop(0)
        if due:
            self.cut()

    def cut(self):
        """Ends all connections."""
        with self.lock:
            end(*self.links)
            self.links.clear()

    def stop(self):
        end(self.listener)
        self.listener.close()
        self.cut()
        self.thread.join(20)


class Proxy(Relay):
    """A proxy that knows where the names of `places` are ({"registry.test:443": "127.0.0.1:4711"}). `login` is the
    "user:password" that it wants, `refusals` lists statuses that it gives to the next who ask. `asked` lists (line, headers) of what was
    asked for."""

    def __init__(self, scratch, places, login=None, refusals=()):
        self.places = places
        self.login = login
        self.refusals = list(refusals)
        self.asked = []
        super().__init__(scratch, "")

    def serve(self, link):
        try:
            line, headers = self.read_head(link)
            self.asked.append((line, headers))
            status, fields, there = self.judge(line, headers)
            link.sendall("\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode())
            if there:
                self.pass_on(link, there)
        except (OSError, ValueError):
            end(link)
        link.close()

    @staticmethod
    def read_head(link):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = link.recv(1)
            if not byte:
                raise ValueError("an end within the head")
            head += byte
        line, *rest = head.decode().strip().split("\r\n")
        return line, {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in rest)}

    def judge(self, line, headers):
        """(status and reason, lines of the head, connection to go on with or None)"""
        method, target, _ = line.split(" ")
        wanted = "Basic " + base64.b64encode((self.login or "").encode()).decode()
        if self.login and headers.get("proxy-authorization") != wanted:
            return "407 Proxy Authentication Required", ['Proxy-Authenticate: Basic realm="test"', "Content-Length: 0"], None
        if self.refusals:
            return f"{self.refusals.pop(0)} Refused", ["Content-Length: 0"], None
        if method != "CONNECT" or target not in self.places:
            return "502 Bad Gateway", ["Content-Length: 0"], None
        return "200 Connection established", [], connect(self.places[target])
