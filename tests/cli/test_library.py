"""libcaisson as an installed library: found by pkg-config, compiled against, shared and static, and what it exports."""
import os
import re
import subprocess

from harness import BUILD, PATIENCE, TOP, env, equal, path
import harness


def sh(*args, **options):
    p = subprocess.run(args, capture_output=True, timeout=300, **options)
    assert p.returncode == 0, f"{args}: {p.stderr.decode(errors='replace')[-1500:]}"
    return p.stdout.decode()


def installed():
    """The DESTDIR, made once."""
    dest = path("installed")
    if not os.path.isdir(dest):
        sh("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", dest)
    return dest


def config(*what):
    for root, _, files in os.walk(installed()):
        if "libcaisson.pc" in files:
            return sh("pkg-config", *what, "libcaisson", env={**os.environ, "PKG_CONFIG_PATH": root,
                      "PKG_CONFIG_SYSROOT_DIR": installed()}).split(), os.path.dirname(root)
    raise AssertionError("no libcaisson.pc was installed")


def sanitizers():
    options = sh("meson", "introspect", "--buildoptions", BUILD)
    found = re.search(r'"b_sanitize", "value": "([^"]*)"', options) or re.search(r'"value": "([^"]*)"[^}]*"b_sanitize"', options)
    return [f"-fsanitize={found[1]}"] if found and found[1] != "none" else []


def build_example(out, *options):
    flags, lib = config("--cflags", "--libs", *options)
    sh("cc", "-Wall", "-Wextra", "-Werror", *sanitizers(), os.path.join(TOP, "examples/c/run.c"), "-o", out, *flags)
    return lib


def check_example(program, **more):
    p = subprocess.run([program, "echo", "hello from C"], capture_output=True, env=env(**more), timeout=60 * PATIENCE)
    equal((p.returncode, p.stdout, p.stderr), (0, b"hello from C\n", b""), "the example")
    p = subprocess.run([program, "sh", "-c", "echo no >&2; exit 9"], capture_output=True, env=env(**more), timeout=60 * PATIENCE)
    equal((p.returncode, p.stdout, p.stderr), (9, b"", b"no\n"), "the example's exit code")
    p = subprocess.run([program, "true"], capture_output=True, env={**harness.environment, "CAISSON_URL": "http://127.0.0.1:1", **more}, timeout=60 * PATIENCE)
    equal(p.returncode, 125, "without a server")


def test_example_with_the_shared_library():
    lib = build_example(path("example"))
    check_example(path("example"), LD_LIBRARY_PATH=lib)


def test_example_with_the_static_library():
    # Only libcaisson is static: what a static libcurl would need is not ours to install.
    flags, lib = config("--cflags")
    flags += [os.path.join(lib, "libcaisson.a"), *sh("pkg-config", "--libs", "libcurl", "jansson").split(), "-lpthread"]
    sh("cc", *sanitizers(), os.path.join(TOP, "examples/c/run.c"), "-o", path("example-static"), *flags)
    check_example(path("example-static"))


def test_example_is_short():
    with open(os.path.join(TOP, "examples/c/run.c")) as f:
        lines = [l for l in f if l.strip()]
    assert len(lines) <= 36, f"{len(lines)} lines"


def test_only_our_names_are_exported():
    _, lib = config("--libs")
    names = re.findall(r"^\S+ [A-Z] (\S+)$", sh("nm", "-D", "--defined-only", os.path.join(lib, "libcaisson.so")), re.M)
    assert len(names) > 20 and all(n.startswith("caisson_") for n in names), f"exported: {[n for n in names if not n.startswith('caisson_')]}"
    names = re.findall(r"^\S+ [A-Z] (\S+)$", sh("nm", "-g", "--defined-only", os.path.join(lib, "libcaisson.a")), re.M)
    ours = [n for n in names if not n.startswith(("__asan", "__odr_asan"))]
    assert len(ours) > 20 and all(n.startswith("caisson_") for n in ours), f"in the archive: {[n for n in ours if not n.startswith('caisson_')]}"


def test_header_stands_alone():
    flags, _ = config("--cflags")
    for compiler, language in (("cc", "c"), ("c++", "c++")):
        source = path("alone." + language)
        with open(source, "w") as f:
            f.write('#include <caisson.h>\nint main(void) { return caisson_version() == 0; }\n')
        if subprocess.run(["which", compiler], capture_output=True).returncode == 0:
            sh(compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language, source, *flags)


def test_man_pages():
    pages = os.path.join(TOP, "docs/man")
    for name in sorted(os.listdir(pages)):
        if name.endswith(".1") and subprocess.run(["which", "mandoc"], capture_output=True).returncode == 0:
            sh("mandoc", "-T", "lint", "-W", "error", os.path.join(pages, name))
    help_text = subprocess.run([harness.CAISSON, "help"], capture_output=True).stdout.decode()
    for name in re.findall(r"^  (\w+) ", help_text.split("Options of")[0], re.M):
        if name not in ("help", "version"):
            assert os.path.exists(os.path.join(pages, f"caisson-{name}.1")), f"no man page of {name}"
            # Every option that the help knows is explained in the page, and none is invented there.
            options = set(re.findall(r"--([a-z][a-z-]+)", subprocess.run([harness.CAISSON, "help", name], capture_output=True).stdout.decode().split("\n\n")[2]))
            with open(os.path.join(pages, f"caisson-{name}.1")) as f:
                page = f.read()
            explained = set(re.findall(r"Fl -([a-z][a-z-]+)", page))
            common = {"json", "url", "data", "help"}
            equal(sorted(options - common - explained), [], f"options of {name} that its page does not explain")
