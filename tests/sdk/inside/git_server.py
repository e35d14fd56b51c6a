"""git http-backend behind HTTP basic authentication, on two ports of the loopback: git_server.py ROOT PORT OTHER

The first wants bob / S3cret for everything, and sends /away/... to the other port. The other wants the same, so that a client which gives what
it has to whoever asks gets in. Every user and password that comes is a line of ROOT/heard.
"""
import base64, http.server, os, subprocess, sys, threading

root, port, other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def refuse(self, code, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while n := int(self.rfile.readline(), 16):
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        given = self.headers.get("Authorization", "")
        if given:
            with lock, open(root + "/heard", "a") as f:
                f.write("%d %s\n" % (self.server.server_port, base64.b64decode(given.split()[1]).decode()))
        if self.path.startswith("/away/") and self.server.server_port == port:
            return self.refuse(302, Location="http://127.0.0.1:%d/%s" % (other, self.path[6:]))
        if given != "Basic " + base64.b64encode(b"bob:S3cret").decode():
            return self.refuse(401, WWW_Authenticate='Basic realm="git"')
        path, _, query = self.path.partition("?")
        env = dict(os.environ, GIT_PROJECT_ROOT=root, GIT_HTTP_EXPORT_ALL="1", REMOTE_USER="bob", REQUEST_METHOD=self.command, PATH_INFO=path,
                   QUERY_STRING=query, CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)),
                   HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""), GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        out = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=env).stdout
        head, _, data = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET


servers = [http.server.ThreadingHTTPServer(("127.0.0.1", p), Handler) for p in (port, other)]
threading.Thread(target=servers[1].serve_forever, daemon=True).start()
open(root + "/up", "w").close()
servers[0].serve_forever()
