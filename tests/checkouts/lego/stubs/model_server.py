"""Stand-in model server on 127.0.0.1: lists one model. Ends when the runner that started it is gone.

model_server.py PORT MODEL              serves
model_server.py --wait PORT MODEL PID   waits until that model is listed, or process PID is gone
"""
import http.server
import json
import os
import sys
import threading
import time
import urllib.request


def serve(port, model):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"object": "list", "data": [{"id": model, "object": "model"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    runner = os.getppid()

    def watch():
        while os.getppid() == runner:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def wait(port, model, pid):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(200):
        try:
            answer = opener.open("http://127.0.0.1:%d/v1/models" % port, timeout=2).read().decode()
            if model in answer:
                return 0
        except (OSError, ValueError):
            pass
        # A server that ended is a zombie until the runner waits for it: /proc tells, a signal would not.
        try:
            with open("/proc/%d/stat" % pid) as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    return 1
        except OSError:
            return 1
        time.sleep(0.1)
    return 1


if __name__ == "__main__":
    if sys.argv[1] == "--wait":
        sys.exit(wait(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    try:
        serve(int(sys.argv[1]), sys.argv[2])
    except KeyboardInterrupt:
        sys.exit(130)
