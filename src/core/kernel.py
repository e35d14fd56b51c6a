# The Python kernel of an interpreter: a program of ours, given to the sandbox's own python3 with -c (src/core/interpreter.c).
#
# Requests come as lines of JSON on stdin, events leave as lines of JSON on stdout. Both descriptors are moved away first, so that
# the code which runs here, and what it starts, has /dev/null and two pipes instead. The main thread runs code, one piece after
# another; the pump thread reads requests and the pipes. A SIGINT interrupts the code; between two pieces it does nothing.
#
# Python may see a SIGINT too late: when the main thread waits in the system already, and nobody wakes it. So the pump, asked to
# interrupt, sends one and then wakes the main thread until the handler has run.
import ast, asyncio, base64, builtins, codecs, importlib.abc, importlib.util, inspect, io, json, linecache, os, queue, select
import signal, sys, threading, time, traceback, types

PIECE = 48 << 10        # characters in one event
RESULT_MAX = 4 << 20    # characters in one result
TEXT_MAX = 256 << 10    # characters in one text of an error
LINE_MAX = 8 << 20      # bytes of one event; the server takes no more
TICK = 0.02             # seconds that a half line is held back
MAIN = threading.get_ident()
PID = os.getpid()
NUDGE = signal.SIGRTMAX
BEGAN_IN = os.getcwd()

requests_fd, events_fd = os.dup(0), os.dup(1)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
pipes = {}
for number in (1, 2):
    r, w = os.pipe()
    os.dup2(w, number)  # inherited by what the code starts
    os.close(w)
    os.set_blocking(r, False)
    pipes[r] = (number, codecs.getincrementaldecoder('utf-8')('replace'))
wake_r, wake_w = os.pipe()
glance = select.poll()
for number in pipes:
    glance.register(number, select.POLLIN)

lock = threading.RLock()
todo = queue.SimpleQueue()
current = 0             # the piece under way; 0 = none
deadline = None
running = False         # code of the user's is on the main thread: a SIGINT is for it
sending = 0             # the main thread is inside send(): a SIGINT has to wait
struck = False          # and one does
cancelled = 0           # the piece that was interrupted before it was under way
owed = False            # the pump's SIGINT has not been seen yet
waits = False           # another thread wants the lock
held, held_stream, sent_at = [], 1, 0.0


def interrupt(*_):
    global struck, owed
    owed = False
    if running and sending:
        struck = True
    elif running:
        raise KeyboardInterrupt


class guarded:
    """Holds the lock; no interrupt in between. Locks are not fair: code that prints without a pause would keep the pump out for ever."""
    def __enter__(self):
        global sending, waits
        if threading.get_ident() == MAIN:
            sending += 1
            lock.acquire()
        elif not lock.acquire(False):
            waits = True
            lock.acquire()
            waits = False

    def __exit__(self, *_):
        global sending, struck
        lock.release()
        if threading.get_ident() == MAIN:
            sending -= 1
            if struck and not sending:
                struck = False
                if running:
                    raise KeyboardInterrupt
            if waits and not sending:
                time.sleep(0.001)


def send(event):
    line = json.dumps(event, ensure_ascii=False).encode('utf-8', 'replace') + b'\n'
    if len(line) > LINE_MAX:
        raise ValueError('a result of %d bytes is too large to show' % len(line))
    with guarded():
        view = memoryview(line)
        while view:
            view = view[os.write(events_fd, view):]


def flush():
    """Tells what is held back of the output. With the lock."""
    global held, sent_at
    if held:
        text, held = ''.join(held), []
        sent_at = time.monotonic()
        for at in range(0, len(text), PIECE):
            send({'t': 'out', 'id': current, 's': held_stream, 'x': text[at:at + PIECE]})


def hold(stream, text):
    """Output of the code. With the lock."""
    global held_stream
    if stream != held_stream:
        flush()
        held_stream = stream
    held.append(text)
    if len(held) > 1000 or len(text) > PIECE or not current or (text[-1:] == '\n' and time.monotonic() - sent_at > TICK):
        flush()


def drain():
    """What programs have written into the pipes. With the lock."""
    for fd, (stream, decoder) in pipes.items():
        try:
            while True:
                chunk = os.read(fd, 65536)
                if not chunk:
                    break
                text = decoder.decode(chunk)
                if text:
                    hold(stream, text)
        except BlockingIOError:
            pass


class Bytes(io.RawIOBase):
    def __init__(self, text):
        self.text, self.decoder = text, codecs.getincrementaldecoder('utf-8')('replace')

    def writable(self):
        return True

    def fileno(self):
        return self.text.fileno()

    def write(self, data):
        data = bytes(data)
        self.text.write(self.decoder.decode(data))
        return len(data)


class Out(io.TextIOBase):
    encoding, errors = 'utf-8', 'replace'

    def __init__(self, stream):
        self.stream = stream
        self.buffer = Bytes(self)
        self.name = '<stdout>' if stream == 1 else '<stderr>'

    def writable(self):
        return True

    def fileno(self):
        return self.stream

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError('write() argument must be str, not ' + type(text).__name__)
        if text:
            with guarded():
                if text != '\n' and glance.poll(0):  # a program's words come before ours, but for the end of a line begun
                    drain()
                hold(self.stream, text)
        return len(text)

    def flush(self):
        with guarded():
            flush()


def in_child():
    """A fork of ours is not the kernel: it writes as any program does."""
    global running, lock
    running, lock = False, threading.RLock()
    for fd in (requests_fd, events_fd):
        os.close(fd)
    sys.stdout, sys.stderr = open(1, 'w', closefd=False), open(2, 'w', closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(NUDGE, signal.SIG_DFL)


def nothing(*_):
    pass


def cancel(piece):
    global cancelled, owed
    with guarded():
        if not running or current != piece:
            cancelled = piece
            return
        owed = True
    signal.pthread_kill(MAIN, signal.SIGINT)


def nudge():
    global owed
    owed = owed and running and signal.getsignal(signal.SIGINT) is interrupt and signal.getsignal(NUDGE) is nothing
    if owed:
        signal.pthread_kill(MAIN, NUDGE)


def take(line):
    try:
        request = json.loads(line)
    except ValueError:  # half of one, of a server that died in the middle of it
        return
    if request['op'] == 'ping':
        if request.get('copied') and 'random' in sys.modules:
            sys.modules['random'].seed()  # as Python does in the child of a fork
        left = -1 if deadline is None else max(0, int((deadline - time.monotonic()) * 1000))
        send({'t': 'pong', 'n': request['n'], 'id': current, 'left': left, 'cwd': BEGAN_IN})
    elif request['op'] == 'interrupt':
        cancel(request['id'])
    else:
        todo.put(request)


def pump():
    poll = select.poll()
    for fd in (requests_fd, wake_r, *pipes):
        poll.register(fd, select.POLLIN)
    pending = b''
    while True:
        ready = dict(poll.poll(TICK * 1000 if held or current else None))
        if owed:
            nudge()
        with guarded():
            if any(fd in ready for fd in pipes):
                drain()
            flush()
        if wake_r in ready:
            os.read(wake_r, 4096)
        if requests_fd in ready:
            chunk = os.read(requests_fd, 1 << 20)
            if not chunk:
                os._exit(0)
            pending += chunk
            *lines, pending = pending.split(b'\n')
            for line in lines:
                take(line)


# --- results that are more than text ---

FORMS = (('_repr_html_', 'text/html'), ('_repr_markdown_', 'text/markdown'), ('_repr_svg_', 'image/svg+xml'), ('_repr_png_', 'image/png'),
         ('_repr_jpeg_', 'image/jpeg'), ('_repr_pdf_', 'application/pdf'), ('_repr_latex_', 'text/latex'), ('_repr_json_', 'application/json'),
         ('_repr_javascript_', 'application/javascript'))


def form(value):
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else json.dumps(value)


def bundle(value):
    data = {}
    if hasattr(type(value), '_repr_mimebundle_'):
        try:
            found = value._repr_mimebundle_()
            data.update(found[0] if isinstance(found, tuple) else found or {})
        except Exception:
            pass
    for method, mime in FORMS:
        if mime not in data and hasattr(type(value), method):
            try:
                found = getattr(value, method)()
                data[mime] = found[0] if isinstance(found, tuple) else found
            except Exception:
                pass
    if 'text/plain' not in data:
        data['text/plain'] = repr(value)
    return {k: form(v) for k, v in data.items() if v is not None}


def result(data, main=False):
    kept, left = {}, RESULT_MAX
    for mime, text in data.items():
        left -= len(text)
        if left >= 0:
            kept[mime] = text
    if len(kept) < len(data):
        kept.setdefault('text/plain', '(a result that is too large to show)')
    with guarded():
        drain()
        flush()
        send({'t': 'result', 'id': current, 'main': main, 'data': kept})


def display(*values, **_):
    for value in values:
        result(bundle(value))


def show_figures(*_, **__):
    pyplot = sys.modules['matplotlib.pyplot']
    for number in pyplot.get_fignums():
        figure, image = pyplot.figure(number), io.BytesIO()
        figure.savefig(image, format='png', bbox_inches='tight')
        result({'text/plain': repr(figure), 'image/png': form(image.getvalue())})
        pyplot.close(figure)


class Plots(importlib.abc.MetaPathFinder):
    """When matplotlib comes in, it draws into pictures, and show() hands them out."""
    def find_spec(self, name, path=None, target=None):
        if name != 'matplotlib':
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader and not os.environ.get('MPLBACKEND'):
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                module.use('module://_caisson_plots')
            spec.loader.exec_module = exec_module
        return spec


class PlotsBackend(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What matplotlib then draws with, made when it first asks: by then it has come in itself. It copies the module's names, so all are there."""
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == '_caisson_plots' else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        module.FigureCanvas, module.show = FigureCanvasAgg, show_figures


# --- running ---

main = types.ModuleType('__main__')
main.__builtins__ = builtins
event_loop = None


def evaluate(code):
    global event_loop
    value = eval(code, main.__dict__)
    if code.co_flags & inspect.CO_COROUTINE:
        if event_loop is None or event_loop.is_closed():
            event_loop = asyncio.new_event_loop()
            asyncio.set_event_loop(event_loop)
        value = event_loop.run_until_complete(value)
    return value


def execute(source, name):
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    tree = compile(source, name, 'exec', ast.PyCF_ONLY_AST)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if tree.body:
        evaluate(compile(tree, name, 'exec', flags))
    if last is not None:
        value = evaluate(compile(ast.Expression(last.value), name, 'eval', flags))
        if value is not None:
            main._ = value
            result(bundle(value), True)
    if 'matplotlib.pyplot' in sys.modules:
        show_figures()


def own_frames(tb):
    """The traceback without the frames of this file at its ends."""
    while tb and tb.tb_frame.f_globals is globals():
        tb = tb.tb_next
    last, at = tb, tb
    while at:
        if at.tb_frame.f_globals is not globals():
            last = at
        at = at.tb_next
    if last:
        last.tb_next = None
    return tb


def tell(error):
    tb = own_frames(error.__traceback__)
    try:
        value = str(error)
    except Exception:
        value = '(its text cannot be had)'
    try:
        trace = ''.join(traceback.format_exception(type(error), error, tb))
    except Exception:
        trace = 'Traceback (cannot be shown)\n' + type(error).__name__ + '\n'
    send({'t': 'error', 'id': current, 'name': type(error).__name__, 'value': value[:TEXT_MAX], 'traceback': trace[-TEXT_MAX:]})


def run(request, count):
    global current, deadline, running, struck, owed
    current, limit = request['id'], request.get('timeout_ms')
    deadline = time.monotonic() + limit / 1000 if limit else None
    before, error = None, None
    if request.get('env'):
        before = dict(os.environ)
        os.environ.update(request['env'])
    os.write(wake_w, b'!')
    try:
        try:
            with guarded():
                running, struck = True, cancelled == current
            execute(request['code'], '<cell %d>' % count)
        finally:
            running = False
    except BaseException as e:
        error = e
    if os.getpid() != PID:  # a fork that came to its end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if error is None else 1)
    if signal.getsignal(signal.SIGINT) is not interrupt:
        signal.signal(signal.SIGINT, interrupt)
    if before is not None:
        for key in request['env']:
            if key in before:
                os.environ[key] = before[key]
            else:
                os.environ.pop(key, None)
    with guarded():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        drain()
        flush()
    if error is not None:
        tell(error)
        traceback.clear_frames(error.__traceback__)
    struck, owed, deadline = False, False, None
    send({'t': 'end', 'id': current})
    current = 0


def serve():
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(NUDGE, nothing)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = Out(1), Out(2)
    sys.argv = ['']
    sys.modules['__main__'] = main
    sys.meta_path[:0] = [Plots(), PlotsBackend()]
    main.display = display
    os.register_at_fork(after_in_child=in_child)
    threading.Thread(target=pump, daemon=True).start()
    send({'t': 'ready', 'cwd': BEGAN_IN, 'version': '%d.%d.%d' % sys.version_info[:3]})
    count = 0
    while True:
        request = todo.get()
        count += 1
        run(request, count)


serve()
