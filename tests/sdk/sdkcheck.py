"""A client of the newest Python SDK, and how a check is said."""
import atexit, os, shutil, sys, tempfile, traceback

empty = tempfile.mkdtemp(prefix="sdk-")
os.chdir(empty)  # the SDK reads .env of its directory
atexit.register(shutil.rmtree, empty, True)

from daytona import Daytona, DaytonaConfig

d = Daytona(DaytonaConfig(api_key=os.environ["TEST_KEY"], api_url=os.environ["TEST_URL"]))


class Skip(Exception):
    pass


def check(name, f):
    try:
        f()
        print("ok " + name, flush=True)
    except Skip as e:
        print("skip %s: %s" % (name, e), flush=True)
    except BaseException as e:
        mine = [t.lineno for t in traceback.extract_tb(e.__traceback__) if t.filename == sys.argv[0]]
        print("not ok %s: %s" % (name, ("%s: %s (line %s)" % (type(e).__name__, e, mine)).replace("\n", " | ")[:900]), flush=True)
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            raise


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def sh(box, command):
    r = box.process.exec(command)
    assert r.exit_code == 0, r
    return r.result


def fails(f, word):
    try:
        f()
    except Exception as e:
        assert word in "%s %s" % (type(e).__name__, e), "%s: %s" % (type(e).__name__, e)
        return
    raise AssertionError("no error")
