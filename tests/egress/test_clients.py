"""The package managers and clients of every day against indexes of our own, over TLS that is opened: they believe the authority by what they find inside.
(With the true ones: tests/clients.)"""
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile

from test_secrets import CANARY, Set
from upstream import Upstream
from world import Skip, sh

AT = "https://api.test:8443"


def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("caisson_probe.py", "word = 'from the wheel'\n")
        z.writestr("caisson_probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: caisson-probe\nVersion: 1.0\n")
        z.writestr("caisson_probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("caisson_probe-1.0.dist-info/RECORD", "caisson_probe.py,,\n")
    return out.getvalue()


def tarball():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in (("package.json", '{"name":"caisson-probe","version":"1.0.0"}'), ("index.js", "module.exports = 'from the tarball';")):
            info = tarfile.TarInfo("package/" + name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def repository(folder):
    """As files, which git can read as well."""
    env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", GIT_AUTHOR_NAME="x", GIT_AUTHOR_EMAIL="x@x.test", GIT_COMMITTER_NAME="x", GIT_COMMITTER_EMAIL="x@x.test")
    git = lambda *args, stdin="": subprocess.run(["git", "-C", folder, *args], input=stdin, env=env, capture_output=True, text=True, check=True).stdout.strip()
    os.makedirs(folder)
    git("init", "-q", "--bare")
    tree = git("mktree", stdin="100644 blob " + git("hash-object", "-w", "--stdin", stdin="from the repository\n") + "\tword\n")
    git("update-ref", git("symbolic-ref", "HEAD"), git("commit-tree", tree, "-m", "first"))
    git("update-server-info")
    files = {}
    for at, _, names in os.walk(folder):
        for n in names:
            with open(os.path.join(at, n), "rb") as f:
                files["/repo.git/" + os.path.relpath(os.path.join(at, n), folder)] = f.read()
    return files


def package(folder):
    os.makedirs(folder + "/DEBIAN")
    control = "Package: caisson-probe\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@x.test>\nDescription: x\n"
    with open(folder + "/DEBIAN/control", "w") as f:
        f.write(control)
    sh(f"dpkg-deb --root-owner-group --build {folder} {folder}.deb >/dev/null")
    with open(folder + ".deb", "rb") as f:
        deb = f.read()
    index = control + f"Filename: ./caisson-probe.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
    return {"/debian/Packages": index.encode(), "/debian/caisson-probe.deb": deb}


class Indexes(Upstream):
    files = {}

    def plain(self, c, head):
        path = head.split(" ")[1].split("?")[0].replace("/./", "/")
        body = self.files.get(path)
        kind = "text/html" if path.startswith("/simple") else "application/json" if path == "/caisson-probe" else "application/octet-stream"
        c.sendall(b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (b"404 Not Found" if body is None else b"200 OK", kind.encode(), len(body or b"")) + (body or b""))


def test_clients_of_every_day(w):
    if not (shutil.which("git") and shutil.which("dpkg-deb")):
        raise Skip("there is no git or no dpkg-deb here, which make what is fetched")
    packed = tarball()
    npm = {"name": "caisson-probe", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "caisson-probe", "version": "1.0.0", "dist": {
        "tarball": AT + "/files/probe.tgz", "shasum": hashlib.sha1(packed).hexdigest()}}}}
    with Set(w, mode="public", hosts=["api.test:8443"]) as t:
        t.up.close()
        t.up = Indexes(w)
        t.up.files = {
            "/simple/caisson-probe/": b'<a href="/files/caisson_probe-1.0-py3-none-any.whl">caisson_probe-1.0-py3-none-any.whl</a>',
            "/files/caisson_probe-1.0-py3-none-any.whl": wheel(), "/caisson-probe": json.dumps(npm).encode(), "/files/probe.tgz": packed,
            **repository(os.path.join(w.folder, "repository")), **package(os.path.join(w.folder, "package"))}
        t.up.files["/page"] = b"from the page"
        for command, want in (
                (f"pip install -q --no-cache-dir --disable-pip-version-check --no-deps --target /tmp/p -i {AT}/simple caisson-probe && PYTHONPATH=/tmp/p python3 -c 'import caisson_probe; print(caisson_probe.word)'",
                 "from the wheel"),
                (f"mkdir -p /tmp/n && cd /tmp/n && npm install --no-audit --no-fund --loglevel=error --registry={AT}/ caisson-probe >&2 && node -p 'require(\"caisson-probe\")'", "from the tarball"),
                (f"git clone -q {AT}/repo.git /tmp/r && cat /tmp/r/word", "from the repository"),
                ("mkdir -p /tmp/apt/lists/partial /tmp/apt/archives/partial && cd /tmp/apt && "
                 f"echo 'deb [trusted=yes] {AT}/debian ./' >sources.list && "
                 "o='-o Dir::Etc::SourceList=/tmp/apt/sources.list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=/tmp/apt/lists -o Dir::Cache::Archives=/tmp/apt/archives -o APT::Sandbox::User=root' && "
                 "apt-get $o -qq update >&2 && apt-get $o -qq download caisson-probe >&2 && dpkg-deb -f caisson-probe*.deb Package", "caisson-probe"),
                (f"curl -sS {AT}/page", "from the page"),
                (f"python3 -c 'from pip._vendor import requests; print(requests.get(\"{AT}/page\", timeout=30).text)'", "from the page"),
                (f"node -e 'fetch(\"{AT}/page\").then(async (r) => console.log(await r.text()))'", "from the page")):
            r = t.box.run(shell=command, timeout_ms=120000)
            assert r["exit_code"] == 0 and r["stdout"].strip().split("\n")[-1] == want, (command, r["stdout"], r["stderr"])
        # and with the secret, by name and value of a field that a program sends
        r = t.box.run(shell=f'curl -sS -H "Authorization: Bearer $KEY" {AT}/page && python3 -c "import os; from pip._vendor import requests; '
                            f'print(requests.get(\'{AT}/page\', headers=dict(Authorization=\'Bearer \' + os.environ[\'KEY\']), timeout=30).status_code)"')
        assert r["stdout"] == "from the page200\n", r
        assert [t.up.field("Authorization", i) for i in (-1, -2)] == ["Bearer " + CANARY] * 2
