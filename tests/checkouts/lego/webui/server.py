"""Stand-in board: lists the runs whose logs lie in its folders, one level deep. Binds 127.0.0.1 only.

GET /api/runs   a JSON list; a dangling link makes it fail whole with 500, as older boards do
GET /           the same as a page
"""
import argparse
import glob
import html
import http.server
import json
import os
import re
import time

HIDDEN_ENDS = ("_vllm.log", "_train_gpu_wandb.log", "_server.out")
HIDDEN_STARTS = ("launch_",)
FRESH_SECONDS = 120
SHOWN_FROM_STEPS = 5
# training/global_step:12
STEP = re.compile(rb"training/global_step:(\d+)")


def list_runs(folders):
    runs = []
    now = time.time()
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*"))):
            name = os.path.basename(path)
            if not name.endswith((".log", ".out")) or name.endswith(HIDDEN_ENDS) or name.startswith(HIDDEN_STARTS):
                continue
            facts = os.stat(path)
            with open(path, "rb") as log:
                steps = max([int(step) for step in STEP.findall(log.read())] or [0])
            is_fresh = now - facts.st_mtime < FRESH_SECONDS
            if is_fresh or steps > SHOWN_FROM_STEPS:
                stem = os.path.splitext(name)[0]
                runs.append({"id": stem, "name": stem, "path": path, "steps": steps, "size": facts.st_size,
                             "mtime": facts.st_mtime, "state": "running" if is_fresh else "finished"})
    return runs


class Board(http.server.BaseHTTPRequestHandler):
    folders = ()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path not in ("/", "/api/runs"):
            return self.answer(404, {"error": "no such page"})
        try:
            runs = list_runs(self.folders)
        except OSError as error:
            return self.answer(500, {"error": str(error)})
        if path == "/api/runs":
            return self.answer(200, runs)
        items = "".join("<li>%s: %d steps" % (html.escape(run["name"]), run["steps"]) for run in runs)
        return self.answer(200, "<title>Runs</title><ul>%s</ul>" % items)

    def answer(self, status, content):
        is_page = isinstance(content, str)
        body = (content if is_page else json.dumps(content)).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8" if is_page else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def main():
    parser = argparse.ArgumentParser(description="Shows the runs of a checkout.")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--log-dir", default="logs")
    parser.add_argument("--extra-log-dir", action="append", default=[])
    options = parser.parse_args()
    Board.folders = [options.log_dir] + options.extra_log_dir
    server = http.server.HTTPServer(("127.0.0.1", options.port), Board)
    print("board: http://127.0.0.1:%d/" % server.server_address[1], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
