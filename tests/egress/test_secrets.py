"""Credentials: a value that a sandbox may use and never sees."""
import os
import subprocess

import world
from world import CAISSON

CANARY = "canary-4f1d0c7e-value-that-nobody-may-see"


def secret(w, name, hosts, value=CANARY, **more):
    w.request("DELETE", f"/v1/secrets/{name}")
    status, s = w.request("POST", "/v1/secrets", {"name": name, "value": value, "hosts": hosts, **more})
    assert status == 201, (status, s)
    return s


def cli(w, *args, **more):
    return subprocess.run([CAISSON, *args], env=dict(os.environ, CAISSON_URL=f"unix:{w.socket}", CAISSON_API_KEY=w.key), capture_output=True,
                          text=True, timeout=60, **more)


def test_secret_is_told_to_nobody(w):
    made = secret(w, "told", ["api.test"], paths=["/v1"])
    assert made["hosts"] == ["api.test:443"] and made["headers"] == ["Authorization"] and made["basic"], made
    assert CANARY not in repr(made)
    for path in ("/v1/secrets", "/v1/secrets/told", f"/v1/secrets/{made['id']}"):
        status, s = w.request("GET", path)
        assert status == 200 and CANARY not in repr(s) and made["placeholder"] in repr(s)
    assert w.request("POST", "/v1/secrets", {"name": "told", "value": "x", "hosts": ["a.test"]})[0] == 409
    status, s = w.request("POST", "/v1/secrets", {"name": "bad", "value": CANARY + "\r\nX: y", "hosts": ["a.test"]})
    assert status == 400 and CANARY not in repr(s), s
    # On the disk: the database holds the placeholder and not the value, nor does any other file.
    found = subprocess.run(["grep", "-rlaF", CANARY, w.folder], capture_output=True, text=True)
    assert found.stdout == "", found.stdout
    assert subprocess.run(["grep", "-rlaF", made["placeholder"], w.folder], capture_output=True, text=True).stdout
    assert os.stat(os.path.join(w.data, "state/secrets.key")).st_mode & 0o777 == 0o600
    assert CANARY not in w.logged()


def test_secret_is_a_placeholder_inside(w):
    made = secret(w, "inside", ["api.test"])
    with w.create(mode="allow", allow=["api.test:443"], secrets={"env": {"API_KEY": "inside"}, "files": {"/srv/keys/api": "inside"}}) as box:
        out = box.run(shell="echo $API_KEY; cat /srv/keys/api; echo; stat -c %a /srv/keys/api; echo $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS")["stdout"].split()
        assert out[:3] == [made["placeholder"], made["placeholder"], "644"], out
        assert out[3:] == ["/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/caisson.crt"], out
        # The authority is in the bundle, once, behind what was there.
        assert box.python("own = open('/usr/local/share/ca-certificates/caisson.crt').read()\n"
                          "all = open('/etc/ssl/certs/ca-certificates.crt').read()\n"
                          "print(all.count(own), all.endswith(own), 'BEGIN CERTIFICATE' in own)") == "1 True True"
        status, s = w.request("PATCH", f"/v1/sandboxes/{box.id}", {"secrets": {"env": {"OTHER": "inside"}}})
        assert status == 200 and s["secrets"] == {"env": {"OTHER": "inside"}, "files": {}}, s
        assert box.run(shell="echo ${API_KEY-none} $OTHER")["stdout"].split() == ["none", made["placeholder"]]
        assert w.request("PATCH", f"/v1/sandboxes/{box.id}", {"secrets": {"env": {"X": "not-there"}}})[0] == 400
        w.request("DELETE", "/v1/secrets/inside")
        assert box.run(shell="echo ${OTHER-none}")["stdout"] == "none\n"
    status, s = w.request("POST", "/v1/sandboxes", {"secrets": {"env": {"X": "not-there"}}})
    assert status == 400 and "not-there" in s["error"]["message"], s


def test_secret_by_the_command_line(w):
    w.request("DELETE", "/v1/secrets/cli")
    r = cli(w, "secret", "add", "cli", "--host", "api.test", "--header", "X-Api-Key", input=CANARY + "\n")
    assert r.returncode == 0 and r.stdout == "cli\n", r
    r = cli(w, "secret", "ls")
    assert "cli" in r.stdout and "api.test:443" in r.stdout and CANARY not in r.stdout, r
    box = cli(w, "create", "--secret", "KEY=cli", "--ephemeral").stdout.strip()
    try:
        r = cli(w, "exec", box, "--", "sh", "-c", "echo $KEY")
        assert r.stdout.startswith("caisson-placeholder-"), r
    finally:
        cli(w, "rm", box)
    assert cli(w, "secret", "rm", "cli").stdout == "cli\n"
    assert cli(w, "secret", "rm", "cli").returncode != 0
    assert cli(w, "secret", "add", "cli", input="x").returncode == 2  # to nowhere


def test_secret_of_another_tenant(w):
    made = secret(w, "mine", ["api.test"])
    status, k = w.request("POST", "/v1/keys", {"name": "other", "tenant": "other"})
    mine, w.key = w.key, k["key"]
    try:
        assert w.request("GET", "/v1/secrets")[1]["items"] == []
        assert w.request("GET", f"/v1/secrets/{made['id']}")[0] == 404
        assert w.request("DELETE", f"/v1/secrets/{made['id']}")[0] == 404
        assert w.request("POST", "/v1/sandboxes", {"secrets": {"env": {"X": made["id"]}}})[0] == 400
    finally:
        w.key = mine
