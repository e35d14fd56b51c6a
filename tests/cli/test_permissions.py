"""Rules of what a sandbox may use, and its questions, by the command line."""
import json

from harness import box, caisson, contains, equal, eventually

OTHERS = ("allow program:/usr", "ask program:/usr/bin/id")


def rules(id):
    return next(x["permissions"] for x in json.loads(caisson("ls", "--json").out)["items"] if x["id"] == id)


def questions(id):
    r = caisson("permissions", "ls", "--json", id)
    equal(r.code, 0, f"permissions ls: {r}")
    return json.loads(r.out)["items"]


def permit(*given):
    return [x for rule in given for x in ("--permit", rule)]


def test_permissions_set():
    with box("--network", "public", *permit(*OTHERS, "deny host:api.test")) as id:
        equal(rules(id), [*OTHERS, "deny host:api.test"], "as created")
        new = [*OTHERS, "deny host:other.test", "ask host:*.wild.test", "deny method:POST,PUT api.test/v1"]
        r = caisson("permissions", "set", id, *new)
        equal((r.code, r.text, r.errors), (0, "", ""), "permissions set")
        equal(rules(id), new, "set")
        for wrong, word in (([*new[:1], *new[2:]], "programs"), ([*new, "deny write:/tmp"], "programs"), ([*new, "deny hosts:x.test"], "hosts"),
                            ([*new, "allow host:a b"], "a b"), ([*new, "ask host:10.0.0.0/8"], "host"), ([*new, "deny method:post a.test"], "post"), ([], "programs")):
            r = caisson("permissions", "set", id, *wrong)
            equal((r.code, r.out), (125, b""), f"{wrong}: {r}")
            contains(r.errors, word, f"{wrong}")
        equal(rules(id), new, "refused, it stays as it was")
        equal(caisson("permissions", "set", id, *OTHERS).code, 0, "none of hosts and methods")
        equal(rules(id), list(OTHERS), "none of hosts and methods")
    with box("--network", "public", *permit("deny host:api.test")) as id:
        equal(caisson("permissions", "set", id).code, 0, "none at all")
        equal(rules(id), [], "none at all")
    with box(*permit(OTHERS[0])) as id:
        r = caisson("permissions", "set", id, OTHERS[0], "deny host:api.test")
        equal(r.code, 125, f"of hosts, without a network: {r}")
        equal(rules(id), [OTHERS[0]], "without a network")
    r = caisson("permissions", "set", "nobody", "deny host:api.test")
    equal(r.code, 125, "a sandbox that is not there")
    contains(r.errors, "nobody")
    equal(caisson("permissions", "set").code, 2, "usage")


def test_permissions_ls_allow_deny():
    with box(*permit(*OTHERS)) as id:
        equal(questions(id), [], "nothing waits")
        for verdict, end in (("allow", "0\n"), ("deny", "126\n")):
            run = caisson("exec", "-d", id, "sh", "-c", "/usr/bin/id >/dev/null; echo $?").text.strip()
            eventually(lambda: questions(id), 60, "a question")
            [q] = questions(id)
            equal((q["path"], q["rule"], q["run"]), ("/usr/bin/id", OTHERS[1], run), "the question")
            contains(caisson("permissions", "ls", id).text, OTHERS[1])
            equal(caisson("permissions", verdict, id, q["id"]).code, 0, verdict)
            eventually(lambda: caisson("logs", id, run).text == end, 60, f"after {verdict}")
            r = caisson("permissions", verdict, id, q["id"])
            equal(r.code, 125, f"a second time: {r}")
            contains(r.errors, q["id"])
    equal(caisson("permissions", "allow", "x").code, 2, "usage")
