// A host that speaks HTTP/2 (and 1.1 when asked). usage: node h2-host.mjs CERT KEY PORT. Prints JSON lines: what it is sent, and what becomes of it.
import fs from "node:fs";
import http2 from "node:http2";

const [cert, key, port] = process.argv.slice(2);
const say = (line) => fs.writeSync(1, JSON.stringify(line) + "\n");
const waiting = []; // streams of events

const paths = {
  "/v1/echo"(stream, headers) { // in a field, in a body cut in two, and in a trailer
    const text = JSON.stringify(headers), at = text.indexOf("canary-") + 9;
    stream.respond({ ":status": 200, "x-echo": headers.authorization ?? "" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-echo-too": headers.authorization ?? "" }));
    stream.write(text.slice(0, at));
    setTimeout(() => stream.end(text.slice(at)), 50);
  },
  "/v1/call"(stream) { // as gRPC does it
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0", "grpc-message": "fine" }));
    stream.pipe(stream);
  },
  "/v1/only-trailers"(stream) {
    stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "5" }, { endStream: true });
  },
  "/v1/events"(stream) {
    stream.respond({ ":status": 200, "content-type": "text/event-stream" });
    stream.write("data: one\n\n");
    waiting.push(stream);
  },
  "/v1/go"(stream) {
    for (const s of waiting.splice(0)) s.end("data: two\n\n");
    stream.respond({ ":status": 204 }, { endStream: true });
  },
  "/v1/big"(stream) {
    let left = 256;
    const more = () => {
      while (left) {
        left--;
        if (!stream.write(Buffer.alloc(65536, "x"))) return void stream.once("drain", more);
      }
      stream.end();
    };
    stream.respond({ ":status": 200 });
    more();
  },
  "/v1/reset"(stream) {
    stream.respond({ ":status": 200 });
    stream.write("some");
    setTimeout(() => stream.destroy(new Error("broken")), 100);
  },
  "/v1/early"(stream) { // an answer before the request is over
    stream.respond({ ":status": 413 });
    stream.end("enough");
    stream.close(http2.constants.NGHTTP2_NO_ERROR);
  },
  "/v1/goaway"(stream) {
    stream.session.goaway();
    stream.respond({ ":status": 200 });
    stream.end("last");
  },
  "/v1/interim"(stream) {
    stream.additionalHeaders({ ":status": 103, link: "</x>" });
    stream.respond({ ":status": 200 });
    stream.end("final");
  },
};

function plain(stream) {
  let n = 0;
  stream.on("data", (d) => (n += d.length));
  stream.on("end", () => {
    stream.respond({ ":status": 200 });
    stream.end(`hello ${n}\n`);
  });
}

const server = http2.createSecureServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) });
server.on("sessionError", () => {});
server.on("session", () => say({ session: true }));
server.on("stream", (stream, headers, flags, raw) => {
  say({ headers, raw });
  stream.on("error", () => {});
  stream.on("close", () => say({ path: headers[":path"], closed: stream.rstCode }));
  (paths[headers[":path"].split("?")[0]] ?? plain)(stream, headers);
});
server.listen(+port, "::", () => say({ ready: true }));
