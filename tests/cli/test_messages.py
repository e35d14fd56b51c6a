"""What is said of a value that cannot be: which one, what is wrong with it, and what would be right."""
import json

from harness import box, caisson, contains, equal


def refused(words, *args, code=(2, 125), stdin=b""):
    r = caisson(*args, stdin=stdin)
    assert r.code in code and r.out == b"", f"{args}: {r}"
    for word in words if isinstance(words, tuple) else (words,):
        contains(r.errors, word, f"{args}")
    assert "no such path" not in r.errors, f"{args}: {r}"


def test_an_empty_name_is_none():
    for args in (("rm", ""), ("rm", "-f", "a", ""), ("start", ""), ("stop", ""), ("logs", "", "x"), ("cp", "", "x"), ("fork", ""), ("publish", "", "80"),
                 ("unpublish", "", "80"), ("permissions", "ls", ""), ("permissions", "allow", "", "1"), ("permissions", "allow", "x", ""),
                 ("permissions", "deny", "x", ""), ("permissions", "set", "x", ""), ("secret", "rm", ""), ("secret", "add", "--host", "a.test", ""),
                 ("webhook", "rm", ""), ("webhook", "new", ""), ("key", "new", ""), ("key", "rm", ""), ("pool", "set", ""), ("exec", "", "id")):
        refused(("argument", "is empty; expected: "), *args, code=(2,), stdin=b"v")
    with box() as id:
        equal(caisson("exec", id, "sh", "-c", "echo $#", "sh", "", "").text, "2\n", "words of a command may be empty")


def test_a_value_out_of_range_is_told_the_range():
    for words, *args in ((("--memory 0:", "16m to 1048576m"), "create", "--memory", "0"), ("16m to 1048576m", "create", "--memory", "lots"),
                         ("1m to 16777216m", "pool", "set", "--disk", "-1", "1"),
                         ("1m to 16777216m", "create", "--disk", "0"), ("0.01 to 1024", "create", "--cpus", "0"), ("0.01 to 1024", "create", "--cpus", "two"),
                         ("4 to 1000000", "create", "--pids", "3"), ("1ms to 3472d", "create", "--idle", "0"), ("1ms to 3472d", "create", "--max-lifetime", "9999d"),
                         ("1ms to 3472d", "run", "--timeout", "0", "true"), ("1 to 100", "fork", "--count", "0", "x"), ("0 to 1000000", "audit", "tail", "-n", "-1"),
                         ("0 to 10000", "pool", "set", "10001"), ("0 to 10000", "pool", "set", " 1"), ("0 to 10000", "pool", "set", "--", "-1"),
                         ("16m to 1048576m", "pool", "set", "--memory", "0", "1"), ("0.01 to 1024", "pool", "set", "--cpus", "0", "1"),
                         ("0 to 10000", "serve", "--pool", "10001"), (("--audit-keep 1m:", "at least 32m"), "serve", "--audit-keep", "1m"),
                         ("1 to 65535", "publish", "x", "65536"), ("1 to 65535", "publish", "x", ":80"), ("1 to 65535", "unpublish", "x", "0")):
        refused(words, *args, code=(2,))
    for words, *args in ((("memory_mib", "16 to 1048576"), "create", "--memory", "1"), (("memory_mib", "16 to 1048576"), "create", "--memory", "99999g"),
                         (("cpus", "0.01 to 1024"), "create", "--cpus", "1025"), (("disk_mib", "1 to 16777216"), "pool", "set", "--disk", "99999g", "1"),
                         (("memory_mib", "16 to 1048576"), "pool", "set", "--memory", "3", "1")):
        refused(words, *args, code=(125,))


def test_what_is_no_text_is_dropped_nowhere():
    """The list it stands in would be another one: without a rule, without a host."""
    bad = b"a\xff"
    with box("--network", "public", "--permit", "deny host:api.test") as id:
        for args in (("secret", "add", "--host", bad, "x"), ("secret", "add", "--host", "a.test", "--path", bad, "x"), ("secret", "add", "--host", "a.test", bad),
                     ("secret", "add", "--host", "a.test", "--aws-key-id", bad, "x"), ("webhook", "new", bad), ("webhook", "new", "http://a/", "--type", bad),
                     ("permissions", "set", id, bad), ("permissions", "set", id, "deny host:b.test", bad), ("key", "new", "--tenant", bad, "x"),
                     ("pool", "set", "--network", bad, "0"), ("pool", "set", "--image", bad, "0"), ("create", "--allow", bad), ("create", "--permit", bad)):
            refused("UTF-8", *args, stdin=b"v", code=(125,))
        [box_] = [x for x in json.loads(caisson("ls", "--json").out)["items"] if x["id"] == id]
        equal(box_["permissions"], ["deny host:api.test"], "as it was")


def test_secrets_say_what_is_wrong():
    many = [x for n in range(33) for x in ("--method", "A")]
    for words, *args in ((('hosts: "": it is empty', "a rule is NAME"), "--host", ""), (("hosts[0]: 300 bytes", "at most 256"), "--host", "a" * 300),
                         (('hosts: "a\\x01"', "a rule is NAME"), "--host", "a\x01"), (('headers: ""', "X-Api-Key"), "--header", ""),
                         (('headers: "Host"', "another field"), "--header", "Host"), (('query: ""', "letters, digits"), "--query", ""),
                         (('methods: ""', "at most"), "--method", ""), (("methods: 33 entries", "at most 32"), *many), (('paths: ""', "absolute path"), "--path", ""),
                         (('aws_key_id: ""', "4 to 128 letters and digits"), "--aws-key-id", ""), (('aws_key_id: "a\\x01bcd"', "4 to 128 letters"), "--aws-key-id", "a\x01bcd"),
                         ("4 to 128 letters", "--aws-key-id", "A" * 129), (("description: 1 bytes", "at most 1024", "control"), "--description", "\x1b"),
                         (("description: 1025 bytes", "at most 1024"), "--description", "d" * 1025), (("--from-env :", "no such variable"), "--from-env", "")):
        refused(words, "secret", "add", "--host", "a.test", *args, "x", stdin=b"v") if args[0] != "--host" else refused(words, "secret", "add", *args, "x", stdin=b"v")
    refused(("value: it is empty", "1 to 16384"), "secret", "add", "--host", "a.test", "x", stdin=b"\n")
    refused(('name: ".x"', "1 to 64"), "secret", "add", "--host", "a.test", ".x", stdin=b"v")


def test_secrets_are_listed_with_where_they_may_go():
    for name, *args in (("plain", "--host", "api.test"), ("all-of-it", "--host", "a.test", "--host", "*.b.test:8443", "--header", "X-Key", "--query", "key", "--git",
                                                         "--aws-key-id", "AKIA1234", "--method", "get", "--path", "/v1")):
        equal(caisson("secret", "add", *args, name, stdin=b"v").code, 0, name)
    try:
        rows = {line.split("  ")[0]: [w.strip() for w in line.split("  ") if w.strip()] for line in caisson("secret", "ls").text.splitlines()}
        equal(rows["NAME"][:5], ["NAME", "HOSTS", "PLACES", "PATHS", "METHODS"])
        equal(rows["plain"][1:5], ["api.test:443", "Authorization basic", "all", "all"])
        equal(rows["all-of-it"][1:5], ["a.test:443 *.b.test:8443", "X-Key ?key basic git aws:AKIA1234", "/v1", "GET"])
        items = {x["name"]: x for x in json.loads(caisson("secret", "ls", "--json").out)["items"]}
        equal([items["all-of-it"][k] for k in ("hosts", "headers", "query", "basic", "git", "aws_key_id", "methods", "paths")],
              [["a.test:443", "*.b.test:8443"], ["X-Key"], ["key"], True, True, "AKIA1234", ["GET"], ["/v1"]])
    finally:
        caisson("secret", "rm", "plain", "all-of-it")


def test_a_webhooks_password_is_not_listed():
    r = caisson("webhook", "new", "http://us3r:pa55@127.0.0.1:9/")
    equal(r.code, 0, "webhook new")
    try:
        listed = caisson("webhook", "ls").text
        contains(listed, "http://***:***@127.0.0.1:9/")
        assert "us3r" not in listed and "pa55" not in listed, listed
    finally:
        caisson("webhook", "rm", r.text.split()[0])
