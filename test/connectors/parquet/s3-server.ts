import { createHash, createHmac } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { dirname, join } from "node:path";

/** A strict S3, written from Amazon's documents: checks signatures, pages lists, and causes faults. */
export interface S3Server {
  readonly url: string;
  readonly port: number;
  readonly objects: Map<string, Buffer>;
  readonly requests: string[];
  fault: (request: { readonly method: string; readonly key: string }) => Fault | null;
  now: () => number;
  dump(folder: string): void;
  down(): Promise<void>;
  up(): Promise<void>;
  close(): Promise<void>;
}

export type Fault =
  | { readonly status: number; readonly code: string; readonly headers?: Record<string, string> }
  /** The connection ends before or after the request is executed, or never. */
  | "cut"
  | "cut afterwards"
  | "stall";

export const KEYS = { accessKeyId: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };
export function inS3(s3: Pick<S3Server, "url">, more: Record<string, unknown> = {}) {
  process.env.PLENUM_TEST_S3_ID = KEYS.accessKeyId;
  process.env.PLENUM_TEST_S3_SECRET = KEYS.secret;
  const s3Config = {
    endpoint: s3.url,
    region: REGION,
    bucket: BUCKET,
    path_style: true,
    access_key_id: { env: "PLENUM_TEST_S3_ID" },
    secret_access_key: { env: "PLENUM_TEST_S3_SECRET" },
  };
  return { s3: s3Config, ...more };
}

const BUCKET = "lake";
const REGION = "eu-north-1";
const SKEW_MS = 15 * 60_000;
const PAGE = 7;

export async function startS3(): Promise<S3Server> {
  const objects = new Map<string, Buffer>();
  const requests: string[] = [];
  const sockets = new Set<Socket>();
  let server: Server | null = null;
  let port = 0;
  const s3: S3Server = {
    objects,
    requests,
    fault: () => null,
    now: () => Date.now(),
    get url() {
      return `http://127.0.0.1:${port}`;
    },
    get port() {
      return port;
    },
    dump(folder) {
      for (const [key, bytes] of objects) {
        mkdirSync(dirname(join(folder, key)), { recursive: true });
        writeFileSync(join(folder, key), bytes);
      }
    },
    down,
    up,
    close: down,
  };

  async function up(): Promise<void> {
    const starting = createServer((request, response) => void handle(request, response));
    starting.on("connection", (socket) => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
    });
    server = starting;
    await new Promise<void>((resolve) => starting.listen(port, "127.0.0.1", resolve));
    port = (starting.address() as AddressInfo).port;
  }

  async function down(): Promise<void> {
    const ending = server;
    server = null;
    if (ending === null) return;
    const closed = new Promise((resolve) => ending.close(resolve));
    for (const socket of sockets) socket.destroy();
    await closed;
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const body = Buffer.concat(parts);
    const refuse = (status: number, code: string, headers: Record<string, string> = {}) =>
      response
        .writeHead(status, { "content-type": "application/xml", ...headers })
        .end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>No.</Message></Error>`);
    const [status, code] = refusalOf(request, body, s3.now());
    if (status !== 200) return void refuse(status, code);
    const { bucket, key, query } = addressOf(request);
    const method = request.method ?? "";
    requests.push(`${method} ${key === "" ? `list ${query.get("prefix")}` : key}`);
    const fault = s3.fault({ method, key });
    if (fault === "stall") return;
    if (fault === "cut") return void request.socket.destroy();
    if (fault !== null && fault !== "cut afterwards") return void refuse(fault.status, fault.code, fault.headers);
    if (bucket !== BUCKET) return void refuse(404, "NoSuchBucket");
    const operationResult = carriedOut(method, key, query, request, body);
    if (fault === "cut afterwards") return void request.socket.destroy();
    if ("code" in operationResult) return void refuse(operationResult.status, operationResult.code);
    response.writeHead(operationResult.status).end(operationResult.body);
  }

  function carriedOut(
    method: string,
    key: string,
    query: URLSearchParams,
    request: IncomingMessage,
    body: Buffer,
  ): { status: number; body?: Buffer | string } | { status: number; code: string } {
    if (key === "" && method === "GET" && query.get("list-type") === "2") {
      return { status: 200, body: listing(objects, query) };
    }
    if (method === "PUT") {
      if (request.headers["if-none-match"] === "*" && objects.has(key)) {
        return { status: 412, code: "PreconditionFailed" };
      }
      objects.set(key, body);
      return { status: 200 };
    }
    const storedObject = objects.get(key);
    if (method === "GET") {
      return storedObject === undefined ? { status: 404, code: "NoSuchKey" } : { status: 200, body: storedObject };
    }
    if (method !== "DELETE") return { status: 405, code: "MethodNotAllowed" };
    objects.delete(key);
    return { status: 204 };
  }

  await up();
  return s3;
}

function addressOf(request: IncomingMessage) {
  const url = new URL(request.url ?? "/", "http://any");
  const path = decodeURIComponent(url.pathname).slice(1);
  const [, before] = /^([^.]+)\.localhost/.exec(request.headers.host ?? "") ?? [];
  if (before !== undefined) return { bucket: before, key: path, query: url.searchParams };
  const [bucket = "", ...rest] = path.split("/");
  return { bucket, key: rest.join("/"), query: url.searchParams };
}

/** https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
function refusalOf(request: IncomingMessage, body: Buffer, nowMs: number): [status: number, code: string] {
  const { headers, method = "", url = "/" } = request;
  const parsed =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(
      headers.authorization ?? "",
    );
  if (parsed === null) return [403, "AccessDenied"];
  const [, id, day = "", region = "", names = "", signature] = parsed;
  if (id !== KEYS.accessKeyId) return [403, "InvalidAccessKeyId"];
  if (region !== REGION) return [400, "AuthorizationHeaderMalformed"];
  const stamp = String(headers["x-amz-date"]);
  const at = Date.parse(stamp.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
  if (!(Math.abs(at - nowMs) <= SKEW_MS)) return [403, "RequestTimeTooSkewed"];
  const content = createHash("sha256").update(body).digest("hex");
  if (headers["x-amz-content-sha256"] !== content) return [400, "XAmzContentSHA256Mismatch"];
  const signed = names.split(";");
  const needed = ["host", ...Object.keys(headers).filter((name) => name.startsWith("x-amz-"))];
  if (!needed.every((name) => signed.includes(name))) return [403, "AccessDenied"];
  const [path = "", search = ""] = url.split("?");
  const canonical = [
    method,
    path,
    search.split("&").sort().join("&"),
    ...signed.map((name) => `${name}:${String(headers[name]).trim()}`),
    "",
    names,
    content,
  ].join("\n");
  const scope = `${day}/${region}/s3/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", stamp, scope, createHash("sha256").update(canonical).digest("hex")];
  const hmac = (key: string | Buffer, data: string) => createHmac("sha256", key).update(data).digest();
  const key = hmac(hmac(hmac(hmac(`AWS4${KEYS.secret}`, day), region), "s3"), "aws4_request");
  return hmac(key, text.join("\n")).toString("hex") === signature ? [200, ""] : [403, "SignatureDoesNotMatch"];
}

function listing(objects: ReadonlyMap<string, Buffer>, query: URLSearchParams): string {
  const prefix = query.get("prefix") ?? "";
  const after = query.get("continuation-token") ?? query.get("start-after") ?? "";
  const keysMax = Math.min(PAGE, Number(query.get("max-keys") ?? PAGE));
  const all = [...objects.keys()]
    .filter((key) => key.startsWith(prefix) && Buffer.compare(Buffer.from(key), Buffer.from(after)) > 0)
    .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const encodedKey = (key: string) => encodeURIComponent(key).replaceAll("%2F", "/").replaceAll("%20", "+");
  if (query.get("delimiter") === "/") {
    const keySuffixes = all.map((key) => key.slice(prefix.length)).filter((rest) => rest.includes("/"));
    const names = [...new Set(keySuffixes.map((rest) => `${prefix}${rest.slice(0, rest.indexOf("/"))}/`))];
    const left = names.filter((name) => name > after || after === "");
    const shown = left
      .slice(0, keysMax)
      .map((name) => `<CommonPrefixes><Prefix>${encodedKey(name)}</Prefix></CommonPrefixes>`);
    const isCutHere = left.length > keysMax;
    const token = isCutHere ? `<NextContinuationToken>${left[keysMax - 1]}</NextContinuationToken>` : "";
    return `<?xml version="1.0"?><ListBucketResult><IsTruncated>${isCutHere}</IsTruncated>${token}${shown.join("")}</ListBucketResult>`;
  }
  const page = all.slice(0, keysMax);
  const isCut = all.length > keysMax;
  const contents = page.map((key) => {
    const shown = encodedKey(key);
    return `<Contents><Key>${shown}</Key><Size>${objects.get(key)?.length}</Size></Contents>`;
  });
  const next = isCut ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : "";
  return `<?xml version="1.0"?><ListBucketResult><IsTruncated>${isCut}</IsTruncated>${next}${contents.join("")}</ListBucketResult>`;
}
