"""cp, both ways: bytes, names, modes, links - and what a hostile sandbox may try."""
import os
import shutil
import stat
import subprocess

from harness import CAISSON, box, caisson, contains, env, equal, path, sha


def fresh(name):
    where = path(name)
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(where)
    return where


def tree(top):
    """{relative path: (kind, mode, contents)}"""
    found = {}
    for root, folders, files in os.walk(os.fsencode(top)):
        for n in folders + files:
            p = os.path.join(root, n)
            st = os.lstat(p)
            kind = stat.S_IFMT(st.st_mode)
            what = os.readlink(p) if stat.S_ISLNK(st.st_mode) else sha(open(p, "rb").read()) if stat.S_ISREG(st.st_mode) else None
            found[os.path.relpath(p, os.fsencode(top))] = (kind, 0 if stat.S_ISLNK(st.st_mode) else st.st_mode & 0o777, what)
    return found


def test_a_file_both_ways():
    here = fresh("one")
    data = os.urandom(5 << 20)
    with open(f"{here}/a b.bin", "wb") as f:
        f.write(data)
    os.chmod(f"{here}/a b.bin", 0o640)
    with box("-u", "root") as id:
        equal(caisson("cp", f"{here}/a b.bin", f"{id}:/root/").code, 0, "into a directory")
        equal(caisson("exec", id, "sha256sum", "/root/a b.bin").text.split()[0], sha(data))
        equal(caisson("exec", id, "stat", "-c", "%a", "/root/a b.bin").out, b"640\n", "mode")
        equal(caisson("cp", f"{here}/a b.bin", f"{id}:/new/deep/name").code, 0, "under a new name, folders made")
        equal(caisson("cp", f"{id}:/new/deep/name", f"{here}/back").code, 0)
        equal(sha(open(f"{here}/back", "rb").read()), sha(data))
        equal(os.stat(f"{here}/back").st_mode & 0o777, 0o640, "mode on the way back")
        equal(caisson("cp", f"{id}:/new/deep/name", here).code, 0, "into a local directory")
        equal(sha(open(f"{here}/name", "rb").read()), sha(data))
        r = caisson("cp", f"{id}:/nosuch", here)
        equal(r.code, 125)
        contains(r.errors, "/nosuch")
        equal(caisson("cp", f"{id}:/etc/hostname", f"{here}/no/such/dir/x").code, 125, "a local directory that is not there")
        equal(caisson("cp", f"{here}/nosuch", f"{id}:/").code, 125)
        equal(sorted(os.listdir(here)), ["a b.bin", "back", "name"], "nothing half-made is left")


def test_stdin_and_stdout():
    with box("-u", "root") as id:
        equal(caisson("cp", "-", f"{id}:/root/x", stdin=b"from stdin\0").code, 0)
        equal(caisson("cp", f"{id}:/root/x", "-").out, b"from stdin\0")
        equal(caisson("cp", f"{id}:/root", "-").code, 125, "a directory to stdout")


def test_an_empty_file_and_a_device():
    here = fresh("empty")
    open(f"{here}/empty", "w").close()
    with box("-u", "root") as id:
        equal(caisson("cp", f"{here}/empty", f"{id}:/root/e").code, 0)
        equal(caisson("cp", f"{id}:/root/e", f"{here}/back").code, 0)
        equal(os.path.getsize(f"{here}/back"), 0)
        equal(caisson("cp", f"{id}:/etc/passwd", "/dev/null").code, 0)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null was replaced"


def test_a_tree_both_ways():
    here = fresh("tree")
    top = f"{here}/top"
    os.makedirs(f"{top}/sub/deeper")
    os.makedirs(f"{top}/empty", 0o700)
    for name, mode in (("a", 0o644), ("sub/run.sh", 0o755), ("sub/deeper/b", 0o600), ("with space", 0o644), ("ünïcode", 0o644), ("-dash", 0o644)):
        with open(f"{top}/{name}", "wb") as f:
            f.write(os.urandom(1000))
        os.chmod(f"{top}/{name}", mode)
    with open(os.fsencode(top) + b"/latin-\xff", "wb") as f:
        f.write(b"not UTF-8")
    os.symlink("sub/deeper/b", f"{top}/link")
    os.symlink("../a", f"{top}/sub/up")
    with box("-u", "root") as id:
        r = caisson("cp", "--json", top, f"{id}:/root/copy")
        equal(r.code, 0, f"in: {r}")
        equal(caisson("cp", f"{id}:/root/copy", f"{here}/back").code, 0, "out")
        equal(tree(f"{here}/back"), tree(top), "there and back")
        equal(caisson("cp", top, f"{id}:/root").code, 0, "into a directory that is there")
        equal(caisson("exec", id, "cmp", "/root/top/a", "/root/copy/a").code, 0)
        os.makedirs(f"{here}/into")
        equal(caisson("cp", f"{id}:/root/copy", f"{here}/into").code, 0)
        equal(tree(f"{here}/into/copy"), tree(top))
        equal(caisson("cp", f"{id}:/root/copy/.", f"{here}/into2").code, 0)
        equal(tree(f"{here}/into2"), tree(top), "what is in it, to a new name")
        os.makedirs(f"{here}/into3")
        equal(caisson("cp", f"{id}:/root/copy/.", f"{here}/into3").code, 0)
        equal(tree(f"{here}/into3"), tree(top), "what is in it, into a directory")
        equal(caisson("cp", f"{top}/.", f"{id}:/root/contents").code, 0)
        equal(caisson("exec", id, "cmp", "/root/contents/a", "/root/copy/a").code, 0)
        equal(caisson("cp", f"{id}:/root/copy", f"{here}/top/a").code, 125, "a directory onto a file")
        equal(caisson("cp", f"{id}:/root/copy", f"{here}/back").code, 0, "again, onto what is there")


HOSTILE = r"""
mkdir -p /evil/dir /evil/setuid
ln -s /etc /evil/abs; ln -s ../../outside /evil/out; ln -s dir/../../outside /evil/tricky; ln -s . /evil/here
ln -s here/../../outside /evil/tricky2; ln -s .. /evil/up; ln -s ../dir /evil/dir/inside; ln -s '' /evil/none 2>/dev/null
mkfifo /evil/fifo
cp /bin/true /evil/setuid/s; chmod 6755 /evil/setuid/s
printf x > "/evil/$(printf 'a\nb\033[31m')"
"""


def test_what_comes_out_stays_in_the_target():
    here = fresh("hostile")
    os.makedirs(f"{here}/outside")
    with box("-u", "root") as id:
        equal(caisson("exec", id, "sh", "-c", HOSTILE).code in (0, 1), True)
        r = caisson("cp", f"{id}:/evil", f"{here}/target")
        equal(r.code, 0, f"cp of a hostile tree: {r}")
    got = tree(f"{here}/target")
    links = {k.decode() for k, v in got.items() if v[0] == stat.S_IFLNK}
    equal(links, {"here", "dir/inside"}, "links that stay inside, and no others")
    equal(os.listdir(f"{here}/outside"), [], "nothing outside the target")
    equal(os.stat(f"{here}/target/setuid/s").st_mode & 0o7777, 0o755, "no set-user-id bit")
    assert b"fifo" not in got, "a fifo was made"
    for name in ("abs", "out", "tricky", "up", "fifo"):
        contains(r.errors, f"/{name}", "what is left out is said")
    assert "\x1b" not in r.errors


def test_links_that_wait_in_the_target():
    """A tree that is copied onto links of an earlier copy replaces them, and never writes through them."""
    here = fresh("waiting")
    os.makedirs(f"{here}/outside")
    os.makedirs(f"{here}/target")
    open(f"{here}/outside/file", "w").write("mine")
    os.symlink(f"{here}/outside/file", f"{here}/target/file")
    os.symlink(f"{here}/outside", f"{here}/target/dir")
    with box("-u", "root") as id:
        caisson("exec", id, "sh", "-c", "mkdir -p /t && echo theirs > /t/file")
        equal(caisson("cp", f"{id}:/t/.", f"{here}/target").code, 0)
        equal(open(f"{here}/outside/file").read(), "mine", "written through a link")
        equal(open(f"{here}/target/file").read(), "theirs\n")
        caisson("exec", id, "sh", "-c", "mkdir -p /t/dir && echo theirs > /t/dir/x")
        r = caisson("cp", f"{id}:/t/.", f"{here}/target")
        equal(r.code, 125, "a directory onto a link to one")
        equal(os.listdir(f"{here}/outside"), ["file"], "a directory's link was followed")


def test_special_files_are_left_behind():
    here = fresh("special")
    os.makedirs(f"{here}/t")
    os.mkfifo(f"{here}/t/fifo")
    open(f"{here}/t/file", "w").write("x")
    with box("-u", "root") as id:
        r = caisson("cp", f"{here}/t", f"{id}:/root/t")
        equal(r.code, 0, f"a fifo does not hold it up: {r}")
        contains(r.errors, "fifo")
        equal(caisson("exec", id, "ls", "/root/t").out, b"file\n")
