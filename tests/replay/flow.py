"""The core of what programs do, for the recorder: flow.py"""
import os

import daytona
from daytona import CodeRunParams, CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, FileUpload, SessionExecuteRequest


def fails(f):
    try:
        f()
    except Exception:
        return
    raise AssertionError("no error")


d = Daytona(DaytonaConfig(api_key=os.environ["TEST_KEY"], api_url=os.environ["TEST_URL"]))
sb = d.create(CreateSandboxFromSnapshotParams(language="python", env_vars={"GREETING": "hi"}, labels={"made": "by a recording"}))
try:
    p = sb.process
    d.get(sb.id)
    p.exec("echo out; echo err >&2; exit 3")
    p.exec('pwd; echo "$A $GREETING"', cwd="/tmp", env={"A": "b"})
    p.code_run("import sys\nprint(6*7, sys.argv[1:])", params=CodeRunParams(argv=["a"], env={"X": "y"}))
    p.code_run('raise ValueError("bad")')
    fails(lambda: p.exec("sleep 60", timeout=1))
    p.create_session("s")
    p.execute_session_command("s", SessionExecuteRequest(command="cd /tmp; X=1; echo one; echo two >&2"))
    c = p.execute_session_command("s", SessionExecuteRequest(command="echo $X; pwd", run_async=True))
    p.execute_session_command("s", SessionExecuteRequest(command="true"))  # then that one has ended
    p.get_session_command("s", c.cmd_id)
    p.get_session_command_logs("s", c.cmd_id)
    p.get_session("s")
    p.delete_session("s")
    sb.fs.create_folder("/tmp/r", "755")
    sb.fs.upload_file("one\ntwo é\n".encode(), "/tmp/r/a b.txt")
    sb.fs.upload_files([FileUpload(source=b"\0\xff\n", destination="/tmp/r/bin"), FileUpload(source=b"x", destination="/tmp/r/deep/er")])
    sb.fs.download_file("/tmp/r/a b.txt")
    fails(lambda: sb.fs.download_file("/tmp/r/none"))
    sb.fs.find_files("/tmp/r", "two")
    sb.fs.search_files("/tmp/r", "*.txt")
    sb.fs.move_files("/tmp/r/bin", "/tmp/r/bin2")
    sb.fs.delete_file("/tmp/r/bin2")
    if hasattr(sb, "code_interpreter"):
        sb.code_interpreter.run_code("x = 1\nprint(x)\n1/0")
finally:
    d.delete(sb)
fails(lambda: d.get(sb.id))
os._exit(0)
