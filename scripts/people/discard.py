"""A process that takes traces over HTTP and discards them, on a port of its own choice, which it prints; when its input
ends, it prints how many requests came."""

import http.server
import sys
import threading

PART_BYTES = 1 << 20


class Discarding(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self):
        left = int(self.headers["Content-Length"])
        while left > 0 and (part := self.rfile.read(min(left, PART_BYTES))):
            left -= len(part)
        Discarding.count += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    # A server sends one request at a time, each over a connection of its own.
    server = http.server.HTTPServer(("127.0.0.1", 0), Discarding)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()
    print(Discarding.count)


if __name__ == "__main__":
    main()
