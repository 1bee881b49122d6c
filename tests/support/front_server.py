"""nginx as what stands in front of a registry: TLS with HTTP/2 on a socket of the test's directory (relays.py makes a port of it)."""
import os
import subprocess

from harness import Failed, read_text, wait_for

CONFIG = """\
daemon off;
master_process off;
pid {root}/pid;
error_log {root}/error.log info;
events {{ worker_connections 512; }}
http {{
    log_format short '$server_protocol $status $connection $request_method $request_uri';
    access_log {root}/access.log short;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    client_max_body_size {body_max};
    keepalive_requests {requests};
    server {{
        listen unix:{root}/socket ssl http2;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        location / {{
            proxy_pass http://{target};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto https;
            proxy_request_buffering off;
            proxy_buffering off;
        }}
    }}
}}
"""


class FrontServer:
    """`tls` is what certificates() gave, `requests` after how many of them on one connection it says GOAWAY, `body_max` 0: any."""

    def __init__(self, scratch, target, tls, requests=1000, body_max=0, name="front"):
        self.root = scratch.path(name)
        os.makedirs(self.root)
        with open(f"{self.root}/nginx.conf", "w", encoding="utf-8") as f:
            f.write(CONFIG.format(root=self.root, target=target, cert=tls[1], key=tls[2], requests=requests, body_max=body_max))
        self.process = subprocess.Popen(["nginx", "-e", f"{self.root}/error.log", "-c", f"{self.root}/nginx.conf"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        scratch.owned.append(self)
        wait_for(lambda: os.path.exists(self.socket) or self.process.poll() is not None, 30, "start of nginx")
        if self.process.poll() is not None:
            raise Failed(f"nginx did not start: {read_text(f'{self.root}/error.log')}")

    @property
    def socket(self):
        return f"{self.root}/socket"

    def requests(self, protocol):
        """What was asked for by this protocol: [(status, connection, method, address)]."""
        lines = [line.split(" ") for line in read_text(f"{self.root}/access.log").splitlines()]
        return [tuple(line[1:]) for line in lines if line[0] == protocol]

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
