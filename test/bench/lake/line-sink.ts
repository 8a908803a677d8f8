import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { gunzipSync } from "node:zlib";

/** A database that takes every line and counts bytes, as they come and as they are; `/count` tells them. */
let sent = 0;
let plain = 0;

async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  if (request.method !== "POST") {
    response.end(JSON.stringify({ sent, plain }));
    return;
  }
  const body = Buffer.concat(chunks);
  sent += body.length;
  plain += request.headers["content-encoding"] === "gzip" ? gunzipSync(body).length : body.length;
  response.writeHead(204).end();
}

const server = createServer((request, response) => void respond(request, response));
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  process.stdout.write(`port ${typeof address === "object" ? address?.port : ""}\n`);
});
