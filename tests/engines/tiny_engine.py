"""An inference server of the standard library alone, with one fault on request: a real process for tests.

usage: tiny_engine.py --port PORT [--host HOST] [--fault NAME] [--child PIDFILE] [--delay-s S]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FAULTS = ("none", "broken_500", "no_token", "hang", "in_stream_error", "no_http", "key", "ignore_term")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = "tiny"
    fault = "none"

    def log_message(self, *_arguments):
        pass

    def answer(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        if self.fault == "key" and self.headers.get("authorization") != "Bearer right-key":
            self.answer(401, {"error": {"message": "Unauthorized"}})
            return True
        return False

    def do_GET(self):
        if self.path == "/health":
            self.answer(503 if self.fault == "broken_500" else 200, b"", "text/plain")
        elif self.path == "/v1/models" and not self.refused():
            self.answer(200, {"object": "list", "data": [{"id": self.model}]})
        elif self.path == "/who":
            self.answer(200, {"pid": os.getpid(), "environment": dict(os.environ), "argv": sys.argv})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.refused():
            return
        if request["model"] != self.model:
            self.answer(404, {"error": {"message": f"The model `{request['model']}` does not exist."}})
        elif self.fault == "broken_500":
            self.answer(500, {"error": {"message": "EngineCore encountered an issue"}})
        elif self.fault == "hang":
            time.sleep(60)
        else:
            self.answer(200, self.stream(), "text/event-stream")

    def stream(self):
        frames = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        if self.fault == "in_stream_error":
            frames.append({"error": {"message": "EngineCore encountered an issue", "code": 500}})
        elif self.fault != "no_token":
            frames += [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in ("Hello", " you")]
        frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        frames.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
        return (
            b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
            + b"data: [DONE]\n\n"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--child", type=Path)
    parser.add_argument("--delay-s", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.child:
        # A grandchild that does not end by itself and ignores SIGTERM.
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        code += "; print('up', flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        child.stdout.readline()
        arguments.child.write_text(str(child.pid))
    time.sleep(arguments.delay_s)
    # As the first process of a container it gets no default action for SIGTERM.
    ignore = arguments.fault == "ignore_term"
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignore else lambda *_: os._exit(0))
    Handler.fault, Handler.model = arguments.fault, arguments.model
    ThreadingHTTPServer((arguments.host, arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
