"""A receiver of callbacks: prints each pop, and does the work of a pop once.

    python3 receiver.py [PORT]
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

done = set()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # A pop whose answer was lost comes again, with the same path and number.
        pop = (self.path, self.headers["X-Sequence-Number"])
        again = " again" if pop in done else ""
        done.add(pop)
        # One write a line: callbacks come side by side.
        sys.stdout.write(f"{self.path}: pop {pop[1]}{again}: {body.decode()}\n")
        sys.stdout.flush()
        # Whatever is 2xx ends the pop. Answer when the work is done, not before.
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    # Many timers may be due at once, and each core of a node opens up to 64 connections.
    request_queue_size = 512


port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
try:
    server = Server(("127.0.0.1", port), Receiver)
except OSError as error:
    sys.exit(f"cannot listen on 127.0.0.1:{port}: {error.strerror}. "
             f"End what listens there, or name another port: python3 {sys.argv[0]} {port + 1}")
server.serve_forever()
