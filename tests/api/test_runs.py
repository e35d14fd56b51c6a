"""The rules of a run, with exact values."""
import concurrent.futures
import hashlib
import signal
import time
import uuid

import pytest

from client import LEAST_MEMORY_MIB, PATIENCE, output
from conftest import create, wait_for


def check(result, **want):
    got = {k: result.get(k) for k in want}
    assert got == want, result


def test_streams_and_exit_code_are_exact(shared_box):
    r = shared_box.sh("printf out; printf err >&2; exit 7")
    check(r, state="exited", exit_code=7, signal=None, signal_name=None, stdout="out", stderr="err", stdout_bytes=3, stderr_bytes=3, timed_out=False,
          canceled=False, oom=False, truncated=False, message=None, session=None)
    assert r["started_at"] <= r["ended_at"] and r["duration_ms"] < 30000


def test_argv_goes_through_untouched(shared_box):
    words = ["a b", "", "$HOME", "*", "'", '"', "\\", "é", "\n", "-n"]
    r = shared_box.run({"argv": ["sh", "-c", 'for a; do printf "%s\\0" "$a"; done', "sh"] + words})
    assert output(r, "stdout") == b"".join(w.encode() + b"\0" for w in words)


def test_environment_directory_user(shared_box):
    r = shared_box.run({"argv": ["sh", "-c", 'echo "$A|$PWD"'], "env": {"A": "x=y z"}, "cwd": "/tmp"})
    check(r, stdout="x=y z|/tmp\n", exit_code=0)
    start = shared_box.run({"shell": "mkdir -p below/it; pwd"})["stdout"].strip()
    check(shared_box.run({"argv": ["pwd"], "cwd": "below/it"}), stdout=f"{start}/below/it\n", exit_code=0)
    assert shared_box.run({"argv": ["id", "-u"], "user": "0"})["stdout"] == "0\n"
    assert shared_box.run({"argv": ["id", "-un"], "user": "nobody"})["stdout"] == "nobody\n"
    assert shared_box.run({"argv": ["id", "-u"], "user": "1234:1234"})["stdout"] == "1234\n"


@pytest.mark.parametrize("field,value", [("cwd", "/no/such/folder"), ("cwd", "/etc/passwd"), ("user", "no-such-user")])
def test_what_cannot_begin_says_why(shared_box, field, value):
    r = shared_box.run({"argv": ["true"], field: value})
    check(r, state="failed", exit_code=None)
    assert r["message"], r


def test_no_stdin_is_end_of_file_at_once(shared_box):
    t = time.monotonic()
    check(shared_box.run({"argv": ["cat"]}), exit_code=0, stdout="", stderr="")
    assert time.monotonic() - t < 5


@pytest.mark.parametrize("data", ["", "text\n", "é\0x", "x" * 300000])
def test_stdin_text(shared_box, data):
    assert output(shared_box.run({"argv": ["cat"], "stdin": data.replace("\0", "")}), "stdout") == data.replace("\0", "").encode()


def test_stdin_bytes(shared_box):
    import base64
    data = bytes(range(256)) * 5000
    r = shared_box.run({"argv": ["sha256sum"], "stdin_base64": base64.b64encode(data).decode()})
    assert r["stdout"].split()[0] == hashlib.sha256(data).hexdigest()


def test_a_missing_program_is_127(shared_box):
    r = shared_box.run({"argv": ["no-such-program"]})
    check(r, state="exited", exit_code=127, signal=None)
    assert "no-such-program" in r["stderr"]
    r = shared_box.sh("no-such-program")
    check(r, exit_code=127)
    assert "no-such-program" in r["stderr"]


def test_one_that_is_not_executable_is_126(shared_box):
    r = shared_box.run({"argv": ["/etc/passwd"]})
    check(r, state="exited", exit_code=126)
    assert "/etc/passwd" in r["stderr"]
    check(shared_box.run({"argv": ["/tmp"]}), exit_code=126)


def test_signals_are_told_apart_from_codes(shared_box):
    check(shared_box.sh("kill -TERM $$"), state="exited", signal=15, signal_name="SIGTERM", exit_code=143)
    check(shared_box.sh("kill -KILL $$"), signal=9, signal_name="SIGKILL", exit_code=137, oom=False)
    check(shared_box.sh("exit 143"), signal=None, exit_code=143)


def test_a_time_limit_keeps_the_output(shared_box):
    t = time.monotonic()
    r = shared_box.sh("echo a; echo b >&2; sleep 60", timeout_ms=1000)
    took = time.monotonic() - t
    check(r, timed_out=True, stdout="a\n", stderr="b\n", signal=9, canceled=False)
    assert 0.9 <= took <= 1.5 * PATIENCE


def test_a_time_limit_ends_the_whole_tree(shared_box):
    mark = str(500000 + int(uuid.uuid4().hex[:4], 16))
    r = shared_box.sh(f"setsid sleep {mark} & (sleep {mark} &) ; nohup sleep {mark} >/dev/null 2>&1 & sleep {mark}", timeout_ms=700)
    check(r, timed_out=True)
    left = lambda: mark.encode() not in output(shared_box.sh("cat /proc/[0-9]*/cmdline 2>/dev/null"), "stdout").replace(b"cat /proc", b"")
    wait_for(left, 5)


def test_a_background_child_does_not_hold_the_reply(shared_box):
    t = time.monotonic()
    r = shared_box.sh("sleep 100 & echo $!")
    assert time.monotonic() - t < 5
    check(r, exit_code=0)
    pid = r["stdout"].strip()
    assert shared_box.sh(f"kill -0 {pid} && echo alive")["stdout"] == "alive\n", "it lives on"
    shared_box.sh(f"kill -9 {pid}")


@pytest.mark.limit(300)
def test_a_thousand_sevens(client):
    box = create(client, resources={"pids": 2000, "memory_mib": 1024})
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        codes = list(pool.map(lambda i: box.run({"argv": ["sh", "-c", "exit 7"]}, timeout=240)["exit_code"], range(1000)))
    client.delete(box.path)
    assert codes == [7] * 1000


def test_a_thousand_at_once(client):
    """All of them alive at the same moment."""
    box = create(client, resources={"pids": 4000, "memory_mib": 1024})
    runs = [box.start({"shell": "sleep 3; exit 7"}) for _ in range(200)]
    codes = [client.get(box.runpath(r), {"wait": True}).json["exit_code"] for r in runs]
    client.delete(box.path)
    assert codes == [7] * 200


def test_fifty_megabytes_come_back_whole(shared_box):
    n = 50_000_000
    r = shared_box.sh(f"head -c {n} /dev/urandom | tee /tmp/random; sha256sum /tmp/random >&2; rm /tmp/random", timeout=120)
    data = output(r, "stdout")
    assert len(data) == n and r["stdout_bytes"] == n and not r["truncated"]
    assert r["stderr"].split()[0] == hashlib.sha256(data).hexdigest()


def test_fifty_megabytes_of_text(shared_box):
    r = shared_box.sh("yes 'é\t\"quoted\" \\' | head -c 50000000", timeout=120)
    data = output(r, "stdout")
    line = 'é\t"quoted" \\\n'.encode()
    assert data == (line * (50000000 // len(line) + 1))[:50000000]


def test_output_beyond_the_cap_is_counted_and_said(shared_box):
    r = shared_box.sh("head -c 1000000 /dev/zero; printf end >&2", output_max=1000)
    assert output(r, "stdout") == bytes(1000)
    check(r, stdout_bytes=1000000, truncated=True, stderr="end", exit_code=0)


def test_bytes_that_are_not_text(shared_box):
    r = shared_box.sh(r"printf '\377\000a'; printf '\303\251\000' >&2")
    assert output(r, "stdout") == b"\xff\0a" and "stdout_base64" in r
    assert r["stderr"] == "é\0"
    assert shared_box.sh("printf x")["stdout"] == "x", "no newline is added"


def test_merged_streams_keep_their_order(shared_box):
    r = shared_box.sh("echo 1; echo 2 >&2; echo 3; echo 4 >&2", merge_stderr=True)
    check(r, stdout="1\n2\n3\n4\n", stderr="", stderr_bytes=0)


def test_out_of_memory_is_reported_as_that(client):
    box = create(client, resources={"memory_mib": LEAST_MEMORY_MIB, "disk_mib": 256})
    # bit by bit: a machine's kernel refuses what is more than it has in one piece
    r = box.run({"argv": ["python3", "-c", "x = []\nwhile True: x.append(b'x' * (1 << 22))"]}, timeout=100)
    check(r, state="exited", oom=True)
    assert r["signal"] == 9 or r["exit_code"] in (1, 137), r
    check(box.sh("echo fine"), stdout="fine\n", oom=False)
    client.delete(box.path)


def test_the_process_limit_holds(client):
    box = create(client, resources={"pids": 32})
    r = box.sh("i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done; wait", timeout_ms=20000, timeout=60)
    assert "fork" in r["stderr"].lower() or "resource" in r["stderr"].lower(), r
    client.delete(box.path)


def test_the_disk_limit_holds(client):
    box = create(client, resources={"disk_mib": 20})
    r = box.sh("head -c 60000000 /dev/zero > big; echo $?; ls -l big")
    assert "No space left on device" in r["stderr"], r
    client.delete(box.path)


@pytest.mark.parametrize("language,code,want", [
    ("python", "import sys; print(6*7, sys.argv[1:])", "42 ['x']\n"),
    ("javascript", "console.log(6*7, process.argv.slice(1))", "42 [ 'x' ]\n"),
    ("typescript", "const n: number = 6*7; console.log(n, process.argv.slice(1))", "42 [ 'x' ]\n"),
    ("bash", 'echo $((6*7)) "[$1]"', "42 [x]\n"),
])
def test_code(shared_box, language, code, want):
    probe = {"python": "python3", "javascript": "node", "typescript": "sucrase-node", "bash": "bash"}[language]
    if shared_box.sh(f"command -v {probe}")["exit_code"]:
        pytest.skip(f"no {probe} in this image")
    r = shared_box.run({"code": code, "language": language, "code_argv": ["x"]})
    check(r, stdout=want, exit_code=0)


def test_code_far_longer_than_an_argument(shared_box):
    script = "# " + "x" * 3_000_000 + "\necho end"
    check(shared_box.sh(script), stdout="end\n")


def test_detach_wait_and_read(client, shared_box):
    run = shared_box.start({"shell": "sleep 0.5; printf late; exit 3"})
    assert run["state"] in ("queued", "running") and run["exit_code"] is None
    r = client.get(shared_box.runpath(run), {"wait": True, "output": True})
    assert r.status == 200
    check(r.json, state="exited", exit_code=3, stdout="late", stderr="")
    plain = client.get(shared_box.runpath(run)).json
    assert "stdout" not in plain and plain["exit_code"] == 3 and plain["stdout_bytes"] == 4
    listed = client.get(shared_box.path + "/runs").json["items"]
    assert run["id"] in [i["id"] for i in listed]


def test_the_same_key_gives_the_same_run(client, shared_box):
    body = {"shell": "echo $$ $(cat /proc/sys/kernel/random/uuid)"}
    key = {"Idempotency-Key": uuid.uuid4().hex}
    a = client.post(shared_box.path + "/runs", body, headers=key).json
    b = client.post(shared_box.path + "/runs", body, headers=key).json
    c = client.post(shared_box.path + "/runs", body).json
    assert a["id"] == b["id"] and a["stdout"] == b["stdout"]
    assert c["id"] != a["id"]


def test_cancel(client, shared_box):
    run = shared_box.start({"shell": "echo begun; sleep 100"})
    wait_for(lambda: client.get(shared_box.runpath(run)).json["stdout_bytes"])
    assert client.delete(shared_box.runpath(run)).status == 204
    r = client.get(shared_box.runpath(run), {"wait": True, "output": True}).json
    check(r, canceled=True, timed_out=False, signal=9, stdout="begun\n")
    assert client.delete(shared_box.runpath(run)).status == 204, "again"


def test_signal(client, shared_box):
    run = shared_box.start({"shell": "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.1; done"})
    wait_for(lambda: client.get(shared_box.runpath(run)).json["stdout_bytes"])
    assert client.post(shared_box.runpath(run, "/signal"), {"signal": "USR1"}).status == 204
    r = client.get(shared_box.runpath(run), {"wait": True, "output": True}).json
    check(r, exit_code=5, signal=None, stdout="ready\ngot\n")
    late = client.post(shared_box.runpath(run, "/signal"), {"signal": "TERM"})
    assert late.status == 410 and late.error["kind"] == "gone"


def test_signal_to_the_tree(client, shared_box):
    run = shared_box.start({"shell": "sh -c 'sleep 100' & setsid sleep 100 & echo ready; wait"})
    wait_for(lambda: client.get(shared_box.runpath(run)).json["stdout_bytes"])
    assert client.post(shared_box.runpath(run, "/signal"), {"signal": int(signal.SIGKILL), "tree": True}).status == 204
    check(client.get(shared_box.runpath(run), {"wait": True}).json, signal=9, canceled=False)


def test_a_terminal(client, shared_box):
    r = shared_box.run({"shell": "test -t 0 && test -t 1 && test -t 2 && echo yes; stty size", "pty": True, "rows": 33, "cols": 99})
    check(r, pty=True, stdout="yes\r\n33 99\r\n", stderr="")


def test_resize(client, shared_box):
    run = shared_box.start({"shell": "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done", "pty": True})
    wait_for(lambda: client.get(shared_box.runpath(run)).json["stdout_bytes"])
    assert client.post(shared_box.runpath(run, "/resize"), {"rows": 40, "cols": 120}).status == 204
    r = client.get(shared_box.runpath(run), {"wait": True, "output": True}).json
    assert r["stdout"].endswith("40 120\r\n")


def test_runs_of_another_sandbox_are_not_found(client, shared_box, box):
    run = shared_box.start({"shell": "true"})
    client.get(shared_box.runpath(run), {"wait": True})
    if client.get(f"{box.path}/runs/{run['id']}").status != 404:
        assert client.get(f"{box.path}/runs/{run['id']}").json["command"] != "true"
    r = client.get(f"{box.path}/runs/run_999999")
    assert r.status == 404 and r.error["kind"] == "not_found"
