"""A model behind the Messages API: one call of the tool `run`, then "done". anthropic_stub.serve() -> (url, seen)"""
import http.server
import json
import threading

from driver import COMMAND


def events(block, delta, stop):
    yield "message_start", {"message": {"id": "m", "type": "message", "role": "assistant", "model": "stub", "content": [], "stop_reason": None,
                                        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield "message_stop", {}


def serve():
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def send(self, status, type, body):
            self.send_response(status)
            self.send_header("Content-Type", type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.send(200, "text/plain", b"")

        do_GET = do_HEAD

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if "count_tokens" in self.path:
                return self.send(200, "application/json", b'{"input_tokens": 1}')
            results = [c for m in body.get("messages", []) if isinstance(m["content"], list) for c in m["content"] if c.get("type") == "tool_result"]
            tool = next((t["name"] for t in body.get("tools", []) if t["name"].endswith("__run")), None)
            seen[:] = results or seen
            if results or not tool:
                stream = events({"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn")
            else:
                stream = events({"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}},
                                {"type": "input_json_delta", "partial_json": json.dumps({"command": COMMAND})}, "tool_use")
            text = "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in stream)
            self.send(200, "text/event-stream", text.encode())

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}", seen
