"""Says again what recorded SDKs said and compares the answers, to the byte but for ids and times: replay.py PORT KEY [--accept] FILE...

With --accept, answers that are different replace the recorded ones; look at what has changed before committing it.

Prints "ok NAME" or "not ok NAME: reason" an exchange. Needs nothing but Python.
"""
import json, os, re, sys

from names import NAME, SHAPE, plain
from wire import Stream, connect, frame

port, key = int(sys.argv[1]), sys.argv[2]
OF_THE_MACHINE = {"the body.networkBlockAll"}  # whether it can give sandboxes a network
CLASS = {"vm": "linux-vm"}.get(os.environ.get("CAISSON_TEST_BOUNDARY"), "container")  # of sandboxes; they were recorded with containers
EVENTS = "/socket.io/"  # lives as long as its client, so only its beginning is the same every time


class Different(Exception):
    pass


def joined(texts):
    """Messages in a row; output that came in several pieces, which is a matter of the moment, as one."""
    whole = []
    for text in texts:
        try:
            o = json.loads(text)
        except ValueError:
            o = {}
        if whole and o.get("type") in ("stdout", "stderr") and o["type"] == whole[-1].get("type"):
            whole[-1]["text"] += o["text"]
        else:
            whole.append(o or {"": text})
    return json.dumps(whole, ensure_ascii=False)


class Session:
    def __init__(self):
        self.known = {"KEY": key, "HOST": "127.0.0.1:%d" % port}
        self.connections = {}

    def say(self, text):
        """Recorded text with the values of this time."""
        return NAME.sub(lambda m: self.known[m.group(1)], text).encode("latin-1")

    def expect(self, what, recorded, got):
        """The recorded text with its names as a pattern; new names get their values."""
        pattern, seen, at = "", set(), 0
        for m in NAME.finditer(recorded):
            pattern += re.escape(recorded[at:m.start()])
            at, name = m.end(), m.group(1)
            if name in self.known:
                pattern += re.escape(self.known[name])
            elif name in ("T", "V"):
                pattern += SHAPE[name]
            elif name in seen:
                pattern += "(?P=%s)" % name
            else:
                seen.add(name)
                pattern += "(?P<%s>%s)" % (name, SHAPE[name[0]])
        found = re.fullmatch(pattern + re.escape(recorded[at:]), got.decode("latin-1"), re.DOTALL)
        if not found:
            raise Different("%s is %s, not %s" % (what, got[:400], recorded[:400]))
        self.known.update(found.groupdict())

    def head(self, recorded, got):
        """Lengths are what the values of this time make them; that they are right is seen when the body is read."""
        same = lambda h: re.sub(r"(?im)^(content-length|date):.*$", r"\1", h)
        self.expect("the head", same(recorded), same(got.decode("latin-1")).encode("latin-1"))

    def body(self, recorded, got):
        """To the byte; a JSON object may have members that it had not: SDKs pass over them, so that is how the API grows."""
        try:
            before, now = json.loads(recorded), json.loads(got)
        except ValueError:
            self.expect("the body", recorded, got)
        else:
            self.value("the body", before, now)

    def value(self, what, before, now):
        if type(before) is not type(now):
            raise Different("%s is %r, not %r" % (what, now, before))
        if isinstance(before, dict):
            for key in before:
                if key not in now:
                    raise Different("%s has no %s any more" % (what, key))
                self.value(what + "." + key, before[key], now[key])
        elif isinstance(before, list):
            if len(before) != len(now):
                raise Different("%s has %d elements, not %d" % (what, len(now), len(before)))
            for i, (a, b) in enumerate(zip(before, now)):
                self.value("%s[%d]" % (what, i), a, b)
        elif isinstance(before, str):  # Latin-1 stands for the bytes that were on the wire
            self.expect(what, CLASS if what.endswith(".sandboxClass") else before, now.encode("utf-8"))
        elif before != now and what not in OF_THE_MACHINE:
            raise Different("%s is %r, not %r" % (what, now, before))

    def connection(self, number):
        if number not in self.connections:
            self.connections[number] = Stream(connect("127.0.0.1", port))
        return self.connections[number]

    def exchange(self, one):
        stream = self.connection(one["c"])
        request = self.say(one["q"])
        stream.sock.sendall(request)
        head, _, body = stream.message(request.split(b" ")[0])
        try:
            self.head(one["a"][0], head)
            self.body(one["a"][1], body)
        except Different:
            if not accept:
                raise
            one["a"] = [plain(head, self.known, True), plain(body, self.known, True)]
        if "f" in one:
            self.socket(stream, one)
        if re.search(r"(?im)^connection: close", one["a"][0]) or "f" in one and EVENTS not in one["q"]:
            self.connections.pop(one["c"]).sock.close()

    def socket(self, stream, one):
        events = EVENTS in one["q"]
        for side, first, data in one["f"]:
            if side == "c" and first & 15 != 8 and not (events and data == "3"):
                stream.sock.sendall(frame(first, self.say(data), True))
        wanted = [(first & 15, data) for side, first, data in one["f"] if side == "s" and first & 15 in (1, 2, 8)]
        if events:
            for first, data in wanted[:2]:
                kind, got = stream.frame()
                self.expect("an event", re.sub('"sid":"[^"]*"', "", data), re.sub(b'"sid":"[^"]*"', b"", got))
            return
        said = []
        while not said or said[-1][0] != 8:
            first, data = stream.frame()
            if first & 15 in (1, 2, 8):
                said.append((first & 15, data))
        self.expect("the texts", joined(d for k, d in wanted if k == 1), joined(d.decode("latin-1") for k, d in said if k == 1).encode("latin-1"))
        for kind, what in ((2, "the bytes"), (8, "the close")):
            self.expect(what, "".join(d for k, d in wanted if k == kind), b"".join(d for k, d in said if k == kind))


accept = sys.argv[3:4] == ["--accept"]
for path in sys.argv[4 if accept else 3:]:
    session, name = Session(), os.path.splitext(os.path.basename(path))[0]
    with open(path, encoding="utf-8") as f:
        exchanges = [json.loads(line) for line in f]
    for number, one in enumerate(exchanges, 1):
        what = "%s %d: %s" % (name, number, " ".join(one["q"].split(" ")[:2]))
        try:
            session.exchange(one)
            print("ok " + what, flush=True)
        except (Different, KeyError, OSError, EOFError) as e:
            print("not ok %s: %s %s" % (what, type(e).__name__, e), flush=True)
            session.connections.pop(one["c"], None)
    if accept:
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(one, separators=(",", ":"), ensure_ascii=False) + "\n" for one in exchanges)
