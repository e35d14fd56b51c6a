"""Ends and beginnings: of the edge, of the server, of sandboxes."""
import glob
import signal

from test_names import DNS
from test_policy import held
from test_reach import CONNECT, REFUSED
from world import *


def held_by_server(w):
    """How many network namespaces the processes of this server hold."""
    found, host = set(), os.stat(w.path("host")).st_ino
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                if not f.read().startswith("caisson") or os.stat(f"/proc/{pid}/ns/net").st_ino != host:
                    continue
            found |= {t for t in map(os.readlink, glob.glob(f"/proc/{pid}/fd/*")) if t.startswith("net:[")}
        except OSError:
            pass
    return len(found)


def test_an_edge_that_is_killed_is_closed_and_comes_back(w):
    with w.create("public") as b:
        end = held(w, b)
        runs = w.request("POST", f"/v1/sandboxes/{b.id}/runs", {"shell": "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i; done", "detach": True})[1]
        old = w.edges()
        assert len(old) == 1, old
        os.kill(old[0], signal.SIGSTOP)  # it does nothing any more: nothing passes
        before = w.echo.connections
        out = b.run(code=CONNECT + f"import socket\nsocket.setdefaulttimeout(1)\nprint(connect('{OTHER4}', 7))", timeout_ms=10000)["stdout"].strip()
        assert out != "open" and w.echo.connections == before, out
        os.kill(old[0], signal.SIGKILL)
        assert end() in ("cut", "closed")
        assert until(lambda: w.edges() and w.edges() != old, 10), w.edges()
        assert until(lambda: b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open", 15)
        assert b.python(DNS + f"print(*ask('api.test'))") == "0 1"
        # the policy is the same one, and nothing else of the sandbox was harmed
        assert b.python(CONNECT + f"print(connect('{LAN4}', 80))") in REFUSED
        assert until(lambda: w.request("GET", f"/v1/sandboxes/{b.id}/runs/{runs['id']}")[1]["state"] == "exited")
        assert w.output(b, runs["id"]).split() == list("123456")


def test_edges_that_are_killed_again_and_again(w):
    boxes = [w.create("allow", allow=[f"{PUBLIC4}:7"]) for _ in range(3)]
    for _ in range(3):
        for pid in w.edges():
            os.kill(pid, signal.SIGKILL)
        assert until(lambda: all(b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open" for b in boxes), 20)
        assert all(b.python(CONNECT + f"print(connect('{OTHER4}', 7))") in REFUSED for b in boxes)
    for b in boxes:
        b.delete()


def test_an_edge_gets_all_gates_at_once(w):
    n = int(os.environ.get("CAISSON_TEST_GATES", "3" if w.machines else "50"))
    boxes = [w.create("allow", allow=[f"{PUBLIC4}:7"], resources={"memory_mib": 128}) for _ in range(n)]
    old = w.edges()
    os.kill(old[0], signal.SIGKILL)
    assert until(lambda: w.edges() and w.edges() != old, 10)
    new = w.edges()
    for b in boxes:
        assert until(lambda: b.run(argv=["bash", "-c", f"exec 3<>/dev/tcp/{PUBLIC4}/7; echo x >&3; read -t 5 y <&3; test $y = x"])["exit_code"] == 0, 10)
    assert w.edges() == new, "it was not started again and again"
    for b in boxes:
        b.delete()


def test_a_new_server_takes_over_with_the_policies(w):
    b = w.create("allow", allow=["api.test:80"], ephemeral=False)
    other = w.create("none", ephemeral=False)
    w.process.kill()
    w.process.wait()
    w.process = None
    assert until(lambda: not w.edges())
    w.serve()
    assert until(lambda: b.run(argv=["curl", "-s", "-m", "5", "http://api.test/"])["stdout"].startswith("hello"), 20)
    assert b.run(argv=["curl", "-s", "-m", "5", f"http://{OTHER4}/"])["exit_code"]
    assert other.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "ENETUNREACH"
    # and after a stop and a start
    assert w.request("POST", f"/v1/sandboxes/{b.id}/stop")[0] == 200
    assert w.request("POST", f"/v1/sandboxes/{b.id}/start")[0] == 200
    assert b.run(argv=["curl", "-s", "-m", "5", "http://api.test/"])["stdout"].startswith("hello")
    b.delete()
    other.delete()


def test_forks_have_gates_of_their_own(w):
    with w.create("allow", allow=[f"{PUBLIC4}:7"], ephemeral=False) as parent:
        assert parent.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open"
        end = held(w, parent)
        status, r = w.request("POST", f"/v1/sandboxes/{parent.id}/fork", {"count": 2})
        assert status == 201, r
        children = [Box(w, s["id"]) for s in r["items"]]
        one, other = children
        for b in (parent, *children):
            out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{OTHER4}', 7))").split()
            assert out[0] == "open" and out[1] in REFUSED, (b.id, out)
        stations = {b.run(argv=["cat", "/sys/class/net/eth0/address"])["stdout"] for b in (parent, *children)} if w.machines else "123"
        assert len(stations) == 3, stations
        # what one may is its own affair
        assert one.network(mode="allow", allow=[f"{OTHER4}:7"])[0] == 200 and other.network(mode="none")[0] == 200
        assert one.python(CONNECT + f"print(connect('{OTHER4}', 7))") == "open"
        assert other.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "ENETUNREACH"
        out = parent.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{OTHER4}', 7))").split()
        assert out[0] == "open" and out[1] in REFUSED, out
        # the parent's connection is the parent's still
        assert parent.network(mode="none")[0] == 200
        assert end() in ("cut", "still open")
        assert one.python(CONNECT + f"print(connect('{OTHER4}', 7))") == "open"
        for b in children:
            b.delete()


def test_nothing_is_left(w):
    def cycles():
        for _ in range(10):
            with w.create("public") as b:
                assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open"

    cycles()  # what is kept in advance is there then
    time.sleep(2)
    before = held_by_server(w)
    cycles()
    assert until(lambda: held_by_server(w) <= before + 2, 10), (before, held_by_server(w))
    assert "gate" not in sh(f"ip -n {w.tag}-host link show")


def test_the_edge_is_nobody(w):
    with w.create("public"):
        pid = w.edges()[0]
        with open(f"/proc/{pid}/status") as f:
            status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        assert len(set(status["Uid"].split())) == 1 and int(status["Uid"].split()[0]) not in (0, os.stat(w.data + "/state").st_uid), status["Uid"]
        assert all(int(status[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), status
        assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2" and status["Groups"].strip() == ""
        assert os.listdir(f"/proc/{pid}/root") == []
        kinds = {os.readlink(f).split(":")[0].split("/")[0] for f in glob.glob(f"/proc/{pid}/fd/*")}
        assert kinds <= {"socket", "anon_inode", "pipe", ""} and not any(os.readlink(f).startswith("net:") for f in glob.glob(f"/proc/{pid}/fd/*")), kinds


def test_sandboxes_do_not_see_each_other(w):
    with w.create("public") as a, w.create("public") as b:
        w.request("POST", f"/v1/sandboxes/{a.id}/runs", {"argv": ["python3", "-m", "http.server", "9000", "--bind", "::"], "detach": True})
        assert until(lambda: a.run(shell="python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9000))\"")["exit_code"] == 0)
        out = b.python(CONNECT + "print(connect('10.97.83.2', 9000), connect('fdca:1550:9753::2', 9000))")
        assert set(out.split()) <= REFUSED, out
