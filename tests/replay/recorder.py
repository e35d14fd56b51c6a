"""Sits between an SDK and a server and writes down what they say: recorder.py SERVER_PORT KEY OUTPUT

Prints the port it listens on; ends at end of file on stdin, and then writes. A line of OUTPUT is one exchange, in the order in which the requests
were complete: {"c": connection, "q": request, "a": response} in Latin-1, for a WebSocket also "f": [[side, first byte, payload], ...]. What
differs from run to run has a name (names.py).
"""
import json, socket, sys, threading

from names import plain
from wire import Stream, connect, frame

server_port, key, output = int(sys.argv[1]), sys.argv[2], sys.argv[3]
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
print(port, flush=True)
exchanges, lock = [], threading.Lock()


def relay(client, number):
    server = connect("127.0.0.1", server_port)
    a, b = Stream(client), Stream(server)
    try:
        while True:
            head, raw, _ = a.message()
            one = {"c": number, "q": head + raw}
            with lock:
                exchanges.append(one)
            server.sendall(head + raw)
            head2, raw2, plain = b.message(head.split(b" ")[0])
            one["a"] = head2, plain
            client.sendall(head2 + raw2)
            if head2.startswith(b"HTTP/1.1 101"):
                one["f"] = []
                threading.Thread(target=frames, args=(b, client, one["f"], "s"), daemon=True).start()
                frames(a, server, one["f"], "c")
                return
    except (EOFError, OSError):
        pass
    finally:
        for s in (client, server):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def frames(source, to, log, side):
    try:
        while True:
            first, data = source.frame()
            log.append((side, first, data))
            to.sendall(frame(first, data, side == "c"))
    except (EOFError, OSError):
        pass


def accept():
    for n in range(1 << 30):
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=relay, args=(client, n), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
sys.stdin.read()

values = {"KEY": key, "HOST": "127.0.0.1:%d" % port}
with open(output, "w", encoding="utf-8") as f:
    for one in exchanges:
        if "a" not in one:
            continue
        line = {"c": one["c"], "q": plain(one["q"], values), "a": [plain(one["a"][0], values, True), plain(one["a"][1], values, True)]}
        if "f" in one:
            line["f"] = [(side, first, plain(data, values)) for side, first, data in one["f"]]
        f.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")
