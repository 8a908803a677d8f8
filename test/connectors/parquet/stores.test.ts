import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { ParquetConfig, S3Config } from "#connectors/parquet/config.ts";
import { createFolderStore } from "#connectors/parquet/folder-store.ts";
import type { ObjectStore } from "#connectors/parquet/object-store.ts";
import { createS3Store, type S3Store } from "#connectors/parquet/s3-store.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { errorText } from "#src/core/errors/errors.ts";
import { checkFolderWritable, fileErrorToFailure } from "#src/core/errors/folder-access.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { startConnectProxy } from "../../connect-proxy.ts";
import { closeAfterTest, testFolder } from "../../test-resources.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import { contextFor, never } from "../context.ts";
import { openS3 } from "./engine.ts";
import { type Fault, inS3, KEYS, type S3Server } from "./s3-server.ts";

const bytes = (text: string) => Buffer.from(text);
const AWKWARD = ["a/b=c d.txt", "a/ö+~*'().txt", "a/100%.txt", "b/x&y<z>.txt"];

describe.each(["folder", "s3"] as const)("objects in the store: %s", (kind) => {
  const setUp = async (): Promise<ObjectStore> =>
    kind === "folder"
      ? createFolderStore(join(testFolder(), "lake"), 0o640)
      : s3Store(await openS3(), { prefix: "some/where" });

  test("stored objects are returned as they were last written, and as null when the key does not exist", async () => {
    const store = await setUp();
    for (const key of AWKWARD) await store.put(key, bytes(`1 ${key}`), never());
    for (const key of AWKWARD) await store.put(key, bytes(`2 ${key}`), never());
    for (const key of AWKWARD) expect(Buffer.from((await store.get(key, never())) ?? []).toString()).toBe(`2 ${key}`);
    expect(await store.get("a/nothing", never())).toBeNull();
    await store.remove("a/100%.txt", never());
    await store.remove("a/100%.txt", never());
    expect(await store.get("a/100%.txt", never())).toBeNull();
  });

  test("stored objects are created by exactly one of three concurrent conditional puts", async () => {
    const store = await setUp();
    const tries = ["one", "two", "three"].map((text) => store.putIfAbsent("log/0.json", bytes(text), never()));
    const done = await Promise.all(tries);
    expect(done.filter(Boolean)).toHaveLength(1);
    const won = ["one", "two", "three"][done.indexOf(true)];
    expect(Buffer.from((await store.get("log/0.json", never())) ?? []).toString()).toBe(won);
    expect(await store.putIfAbsent("log/0.json", bytes("late"), never())).toBe(false);
  });

  test("stored objects are listed by key prefix, in the order of their UTF-8 bytes, over many pages", async () => {
    const store = await setUp();
    expect(await store.list("a/", never())).toEqual([]);
    const keys = [...AWKWARD, ...Array.from({ length: 20 }, (_, n) => `a/${n}`), "a/\u{1f321}", "a/\uff21", "ab"];
    for (const key of keys) await store.put(key, bytes(key), never());
    const sorted = keys.toSorted((a, b) => Buffer.compare(bytes(a), bytes(b)));
    const listed = await store.list("a/", never());
    expect(listed).toEqual(
      sorted.filter((key) => key.startsWith("a/")).map((key) => ({ key, bytes: bytes(key).length })),
    );
    expect((await store.list("a/1", never())).map(({ key }) => key)).toEqual(
      sorted.filter((key) => key.startsWith("a/1")),
    );
    const after = await store.list("a/", never(), "a/15");
    expect(after.map(({ key }) => key)).toEqual(sorted.filter((key) => key.startsWith("a/") && key > "a/15"));
  });

  test("stored objects are not written after the signal has aborted", async () => {
    const store = await setUp();
    const stop = AbortSignal.abort(new Error("stop"));
    await expect(store.put("a", bytes("a"), stop)).rejects.toThrow("stop");
    expect(await store.list("", never())).toEqual([]);
  });
});

describe("the folder store", () => {
  test.each([
    [0o600, 0o700],
    [0o640, 0o750],
    [0o644, 0o755],
  ])("the folder store creates files with mode %o and folders with mode %o", async (mode, folderMode) => {
    const umask = process.umask(0);
    onTestFinished(() => void process.umask(umask));
    const root = join(testFolder(), "lake");
    await createFolderStore(root, mode).put("a/b", Buffer.from("x"), never());
    const modes = [root, join(root, "a"), join(root, "a/b")].map((path) => statSync(path).mode & 0o777);
    expect(modes).toEqual([folderMode, folderMode, mode]);
  });

  test("the folder store syncs a file before its rename, and the folder after a rename or removal; leaves no file open", async () => {
    const root = testFolder();
    const store = createFolderStore(root, 0o640);
    const handle = await open(root);
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const seen: string[][] = [];
    const sync = vi.spyOn(prototype, "sync").mockImplementation(async () => {
      seen.push(readdirSync(root));
    });
    onTestFinished(() => sync.mockRestore());
    await store.put("x.parquet", bytes("x"), never());
    expect(seen).toEqual([[expect.stringMatching(/^\.x\.parquet\.[0-9a-f]{8}\.tmp$/)], ["x.parquet"]]);
    sync.mockRejectedValueOnce(Object.assign(new Error("EIO"), { code: "EIO" }));
    await expect(store.put("x.parquet", bytes("y"), never())).rejects.toMatchObject({ kind: "retryable" });
    expect([readdirSync(root), readFileSync(join(root, "x.parquet"), "utf8")]).toEqual([["x.parquet"], "x"]);
    await store.remove("x.parquet", never());
    expect(seen.at(-1)).toEqual([]);
    const openFiles = readdirSync("/proc/self/fd").map((fd) => {
      const path = `/proc/self/fd/${fd}`;
      return existsSync(path) ? readlinkSync(path) : "";
    });
    expect(openFiles.filter((path) => path.startsWith(root))).toEqual([]);
  });

  test("the probe creates no folder, and checks the nearest existing parent", async () => {
    const root = testFolder();
    await checkFolderWritable(root, "");
    await checkFolderWritable(join(root, "a/b/c"), "");
    expect(readdirSync(root)).toEqual([]);
    await createFolderStore(root, 0o640).put("file", Buffer.from("x"), never());
    await expect(checkFolderWritable(join(root, "file"), "")).rejects.toMatchObject({
      kind: "config",
      field: "folder",
      message: `${join(root, "file")} is not a folder.`,
    });
  });

  test("the folder store reports when the last file was written or read", async () => {
    const clock = createVirtualClock(0);
    const folder = testFolder();
    const store = createFolderStore(folder, 0o640, clock);
    const sink = createParquetSink(ParquetConfig.parse({ folder }), contextFor("lake", clock));
    expect(sink.progressMs?.()).toBe(clock.monotonic());
    for (const step of [() => store.put("a/b", bytes("x"), never()), () => store.get("a/b", never())]) {
      await clock.advance(20_000);
      await step();
      expect(store.progressMs()).toBe(clock.monotonic());
    }
    await sink.close();
  });

  test("the folder store removes old unfinished files of a crash, and no new file or file of another program", async () => {
    const root = testFolder();
    mkdirSync(join(root, "a"));
    for (const name of [".x.parquet.0123abcd.tmp", ".y.parquet.0123abcd.tmp", ".mine.tmp"]) {
      writeFileSync(join(root, "a", name), "half");
      if (!name.startsWith(".y")) utimesSync(join(root, "a", name), 0, 0);
    }
    await createFolderStore(root, 0o640).put("a/z", bytes("z"), never());
    expect(readdirSync(join(root, "a"))).toEqual([".mine.tmp", ".y.parquet.0123abcd.tmp", "z"]);
  });

  test("the folder store refuses a key that leads out of the folder", async () => {
    await expect(createFolderStore(testFolder(), 0o640).put("../x", bytes("x"), never())).rejects.toThrow(/leads out/);
  });

  test.each([
    [
      "EROFS",
      "config",
      "The files in /lake cannot be written (EROFS). The file system is read-only; choose a folder on a writable one.",
    ],
    ["EIO", "retryable", "The files in /lake could not be written (EIO)."],
  ])("the folder store maps the file system error %s to a failure with advice", (code, kind, words) => {
    const failure = fileErrorToFailure(Object.assign(new Error(code), { code }), "/lake", "Free some space");
    expect([failure.kind, errorText(failure)]).toEqual([kind, words]);
  });
});

describe("the S3 store", () => {
  test("the S3 store sends valid signatures with the bucket in the host name, with a session token and through a proxy", async () => {
    const s3 = await openS3();
    const proxy = await startConnectProxy({ hosts: { [`lake.localhost:${s3.port}`]: `127.0.0.1:${s3.port}` } });
    process.env.PLENUM_TEST_S3_TOKEN = "token/with+signs==";
    const store = s3Store(s3, {
      endpoint: `http://localhost:${s3.port}`,
      path_style: false,
      allow_plain_http: true,
      proxy: { url: proxy.url },
      session_token: { env: "PLENUM_TEST_S3_TOKEN" },
    });
    await store.put("a/b c.txt", bytes("x"), never());
    expect(await store.list("a", never())).toEqual([{ key: "a/b c.txt", bytes: 1 }]);
    expect(proxy.requests.map(({ authority }) => authority)).toContain(`lake.localhost:${s3.port}`);
    expect([...s3.objects.keys()]).toEqual(["a/b c.txt"]);
  });

  test("the S3 store repeats a conditional put after a conflict, and gives up after several conflicts", async () => {
    const s3 = await openS3();
    const store = s3Store(s3);
    let conflicts = 1;
    s3.fault = () => (conflicts-- > 0 ? { status: 409, code: "ConditionalRequestConflict" } : null);
    expect(await store.putIfAbsent("a", bytes("a"), never())).toBe(true);
    conflicts = 100;
    await expect(store.putIfAbsent("b", bytes("b"), never())).rejects.toMatchObject({ kind: "retryable" });
  });

  test.each<[Fault, string, RegExp]>([
    [{ status: 403, code: "SignatureDoesNotMatch" }, "config", /does not accept the keys/],
    [{ status: 503, code: "SlowDown", headers: { "retry-after": "7" } }, "throttled", /asks us to wait/],
    [{ status: 200, code: "InternalError" }, "retryable", /not as a storage that has stored something/],
    ["cut", "retryable", /could not be reached/],
  ])(
    "the S3 store maps the response %j to a failure that does not contain the secret key",
    async (fault, kind, message) => {
      const s3 = await openS3();
      s3.fault = () => fault;
      const put = s3Store(s3).put("a", bytes("a"), never());
      const failure = await put.catch((error: unknown) => error);
      expect(failure).toMatchObject({ kind, ...(kind === "throttled" ? { retryAfterMs: 7_000 } : {}) });
      expect(errorText(failure)).toMatch(message);
      expect(errorText(failure)).not.toContain(KEYS.secret);
    },
  );

  test("the probe detects a wrong key, clock, region or bucket, and writes no object", async () => {
    const s3 = await openS3();
    await s3Store(s3).probe(never());
    process.env.PLENUM_TEST_S3_WRONG = "wrong";
    const wrong = { env: "PLENUM_TEST_S3_WRONG" };
    await expect(s3Store(s3, { secret_access_key: wrong }).probe(never())).rejects.toThrow(/SignatureDoesNotMatch/);
    await expect(s3Store(s3, { bucket: "other" }).probe(never())).rejects.toThrow(/no bucket other/);
    await expect(s3Store(s3, { bucket: "other" }).get("a", never())).rejects.toThrow(/no bucket other/);
    await expect(s3Store(s3, { region: "us-west-2" }).probe(never())).rejects.toThrow(/s3\.region|elsewhere/);
    s3.now = () => Date.now() + 20 * 60_000;
    await expect(s3Store(s3).probe(never())).rejects.toThrow(/RequestTimeTooSkewed/);
    expect(s3.objects.size).toBe(0);
  });

  test("the S3 store reports the start time of the last request", async () => {
    let monotonicMs = 0;
    const store = s3Store(await openS3(), {}, { ...systemClock, monotonic: () => monotonicMs });
    expect(store.progressMs()).toBe(Number.NEGATIVE_INFINITY);
    for (const atMs of [20_000, 45_000]) {
      monotonicMs = atMs;
      await store.put("a", bytes("1"), never());
      expect(store.progressMs()).toBe(atMs);
    }
  });

  test.each([
    ["a list", (store: ObjectStore) => store.list("a", never()), 200, /more than 8 MiB to a list.*s3\.endpoint/s],
    ["a probe", (store: ObjectStore) => (store as S3Store).probe(never()), 200, /more than 8 MiB to a list/],
    ["a refused get", (store: ObjectStore) => store.get("a", never()), 403, /answered 403 \(AccessDenied\)/],
    ["a refused put", (store: ObjectStore) => store.put("a", bytes("x"), never()), 403, /\(AccessDenied\)/],
    ["a put", (store: ObjectStore) => store.put("a", bytes("x"), never()), 200, /not as a storage/],
  ] as const)("the S3 store stops reading an endless response to %s", async (_what, query, status, words) => {
    const endless = await startEndless(status);
    const failure = await query(s3Store(endless)).catch((error: unknown) => error);
    expect(errorText(failure)).toMatch(words);
    expect(endless.sent()).toBeLessThan(32 * 1024 ** 2);
  });

  test("the S3 store refuses an object whose Content-Length is above 256 MiB without reading it", async () => {
    const endless = await startEndless(200, { "content-length": String(257 * 1024 ** 2) });
    const failure = await s3Store(endless, { prefix: "lake" })
      .get("tag/tag.parquet", never())
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ kind: "config" });
    expect(errorText(failure)).toMatch(/^lake\/tag\/tag\.parquet in the bucket lake has more than 256 MiB/);
    expect(endless.sent()).toBeLessThan(32 * 1024 ** 2);
  });

  test("the S3 store reads a list page of 1,000 keys with 1,000 bytes each", async () => {
    const keys = Array.from({ length: 1_000 }, (_, n) => `${"\u{1f321}".repeat(255)}${n}`);
    const contents = keys.map((key) => `<Contents><Key>${encodeURIComponent(key)}</Key><Size>1</Size></Contents>`);
    const page = await startAnswering((response) => response.end(contents.join("\n")));
    expect((await s3Store(page).list("", never())).map(({ key }) => key)).toEqual(keys);
  });
});

/** Answers every request with an endless S3 error. */
async function startEndless(status: number, headers: Record<string, string> = {}) {
  let sent = 0;
  const more = Buffer.alloc(64 * 1024, " ");
  const answering = await startAnswering((response) => {
    const goOn = () => {
      let isRead = true;
      while (isRead && !response.destroyed) {
        isRead = response.write(more);
        sent += more.length;
      }
    };
    response.on("drain", goOn).writeHead(status, headers);
    response.write("<Error><Code>AccessDenied</Code>");
    goOn();
  });
  return { ...answering, sent: () => sent };
}

async function startAnswering(reply: (response: ServerResponse) => void) {
  const answering = createServer((request, response) => {
    request.resume().on("end", () => reply(response));
  });
  onTestFinished(() => void answering.close().closeAllConnections());
  await new Promise<void>((resolve) => answering.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(answering.address() as AddressInfo).port}` };
}

function s3Store(s3: Pick<S3Server, "url">, more: Record<string, unknown> = {}, clock: Clock = systemClock) {
  return closeAfterTest(createS3Store(S3Config.parse({ ...inS3(s3).s3, ...more }), clock));
}
