# Runs Python code that comes on the standard input as `python3 -` would (src/core/command.c), but for the end: taking an interpreter apart
# takes longer than most code does, and nobody can see it where nothing that is left has an end of its own. In any doubt it is done.
def run():
    import atexit, gc, os, sys
    from _weakref import ref

    # extension modules of the standard library whose objects end without a trace
    plain = set('''_abc _ast _bisect _blake2 _bz2 _codecs _collections _csv _datetime _decimal _functools _hashlib _heapq _io _json _locale _lzma
        _md5 _opcode _operator _pickle _posixsubprocess _queue _random _sha1 _sha2 _sha256 _sha3 _sha512 _sre _stat _statistics _string _struct
        _thread _typing _uuid _warnings _weakref _zoneinfo array binascii cmath errno fcntl itertools math select time typing unicodedata
        zlib'''.split())

    def is_plain(name):
        top = name.partition('.')[0]
        file = getattr(sys.modules[name], '__file__', None)
        return top in sys.stdlib_module_names and (top in plain or (file is not None and file.endswith('.py')))

    def nothing_ends():
        if count() != hooks or len(sys._current_frames()) > 1 or sys.gettrace() or sys.getprofile():
            return False
        if not all(is_plain(name) for name in set(sys.modules) - known):
            return False
        left = gc.get_objects()
        for kind in set(map(type, left)):
            if any('__del__' in base.__dict__ for base in kind.__mro__):
                return False
            if issubclass(kind, ref) and any(type(o) is kind and o.__callback__ for o in left):
                return False
            if issubclass(kind, type) and any(type(o) is kind and '__del__' in o.__dict__ and not o.__flags__ & 1 << 14 for o in left):
                return False  # its objects are not among those that are left
        return True

    def finish(code):
        try:
            if nothing_ends():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code & 255)
        except Exception:
            pass

    main = sys.modules['__main__'].__dict__
    del main['run']
    main.update(__file__='<stdin>', __cached__=None)
    sys.argv[0] = '-'
    getattr(sys, 'orig_argv', [])[2:4] = ['-']
    compile('', '', 'exec')  # the first one takes its time
    count = getattr(atexit, '_ncallbacks', int)
    known, hooks = set(sys.modules), count()
    getattr(gc, 'freeze', int)()
    source = sys.stdin.buffer.read()
    try:
        exec(compile(source, '<stdin>', 'exec', 0, True), main)
        finish(0)
    except SystemExit as e:
        if e.code is None or type(e.code) is int and abs(e.code) < 1 << 31:
            finish(e.code or 0)
        raise
    except BaseException as e:
        told = sys.excepthook
        tb = e.__traceback__.tb_next
        def tell(kind, value, _):
            sys.excepthook = told
            told(kind, value.with_traceback(tb), tb)
        sys.excepthook = tell
        raise
    finally:
        getattr(gc, 'unfreeze', int)()  # or what hangs together with these would not be ended


run()
