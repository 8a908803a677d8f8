import fs, { rmSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { LocalFailure } from "#src/core/errors/errors.ts";
import { readCertificateFile, readSecret, secretReader } from "#src/core/runtime/secret.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import { testFolder } from "./test-resources.ts";
import { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";
import { startVirtualWorker } from "./virtual-worker.ts";

const MINUTE = 60_000;
const fault = { open: "", read: "" };
const { openSync, readFileSync } = fs;
const failing = (code: string) => Object.assign(new Error(code), { code });

// Patches the module object, so modules that are already loaded use it as well.
beforeAll(() => {
  Object.assign(fs, {
    openSync(...args: Parameters<typeof openSync>) {
      if (fault.open !== "") throw failing(fault.open);
      return openSync(...args);
    },
    readFileSync(...args: Parameters<typeof readFileSync>) {
      if (fault.read !== "") throw failing(fault.read);
      return readFileSync(...args);
    },
  });
  syncBuiltinESMExports();
});

afterAll(() => {
  Object.assign(fs, { openSync, readFileSync });
  syncBuiltinESMExports();
});

afterEach(() => Object.assign(fault, { open: "", read: "" }));

describe("a secret file that is temporarily unreadable", () => {
  let file = "";
  let clock: VirtualClock;
  beforeEach(() => {
    const folder = testFolder("own-trouble");
    file = join(folder, "token");
    clock = createVirtualClock(0);
    put("first");
  });
  const put = (text: string) => writeFileSync(file, text, { mode: 0o600 });

  test.each(["EMFILE", "ENFILE", "ENOMEM", "EIO", "ENOSPC"])(
    "uses the last secret while the file fails with %s",
    (code) => {
      const secret = secretReader({ file }, clock);
      expect(secret().reveal()).toBe("first");
      fault.open = code;
      expect(secret().reveal()).toBe("first");
      Object.assign(fault, { open: "", read: code });
      expect(secret().reveal()).toBe("first");
      fault.read = "";
      put("second");
      expect(secret().reveal()).toBe("second");
    },
  );

  test("throws a local failure if the file opens but cannot be read", () => {
    fault.read = "EACCES";
    expect(() => readSecret({ file })).toThrow(LocalFailure);
  });

  test("throws a local failure if no earlier secret is known", () => {
    fault.open = "EMFILE";
    const secret = secretReader({ file }, clock);
    expect(secret).toThrow(LocalFailure);
    expect(secret).toThrow(/because of this machine: no file may be opened any more \(EMFILE\)/);
    fault.open = "";
    expect(secret().reveal()).toBe("first");
  });

  test.each(["gone", "empty"])(
    "a file that is %s counts as a local failure for a minute, then as a configuration error",
    async (how) => {
      const secret = secretReader({ file }, clock);
      secret();
      if (how === "gone") rmSync(file);
      else put("");
      expect(secret).toThrow(LocalFailure);
      await clock.advance(59_000);
      expect(secret).toThrow(LocalFailure);
      put("second");
      expect(secret().reveal()).toBe("second");
      rmSync(file);
      expect(secret).toThrow(LocalFailure);
      await clock.advance(60_000);
      expect(secret).toThrow(expect.objectContaining({ kind: "config" }));
    },
  );

  test("throws a configuration error at once if the file never existed", () => {
    rmSync(file);
    const secret = secretReader({ file }, clock);
    expect(secret).toThrow(expect.objectContaining({ kind: "config" }));
    expect(secret).not.toThrow(LocalFailure);
  });

  test("reports a local failure for certificates too, unlike a wrong path", () => {
    fault.read = "EMFILE";
    expect(() => readCertificateFile(file, "ca_file")).toThrow(LocalFailure);
    fault.read = "ENOENT";
    expect(() => readCertificateFile(file, "ca_file")).toThrow(expect.objectContaining({ field: "ca_file" }));
  });
});

test("after ten minutes in which the machine allowed no new connection, a worker reports no service or sink as failed and recovers within seconds", async () => {
  let isBroken = false;
  const sentPaths: string[] = [];
  const around =
    (send: Transport): Transport =>
    async (request, signal) => {
      if (isBroken) throw new LocalFailure("The service could not be asked, because of this machine (EMFILE).");
      sentPaths.push(request.path);
      return send(request, signal);
    };
  const virtual = await startVirtualWorker({
    simulator: { sites: [2, 3], alarms: { recorded: false } },
    source: {
      schedules: { alarms: "*/30 * * * * *" },
      read: [{ name: "all", every: "1m" }],
      history: [{ name: "all", resolution: "5m", backfill: "1d" }],
    },
    around,
  });
  onTestFinished(() => virtual.clear());
  const { clock } = virtual;
  await clock.advance(6 * MINUTE);
  const eventsBefore = await virtual.events();
  isBroken = true;
  await clock.advance(10 * MINUTE);
  isBroken = false;
  sentPaths.length = 0;
  await clock.advance(10_000);
  for (const path of ["/alarms", "/tags/read"]) expect(sentPaths.join(" ")).toContain(path);
  await clock.advance(5 * MINUTE);
  const blaming = /^(source|feature|token|tag-set|site|gateway)|unavailable|vanished|removed|missing/;
  const newKinds = (await virtual.events()).slice(eventsBefore.length).map(({ type }) => type);
  expect([...new Set(newKinds)].filter((type) => blaming.test(type))).toEqual([]);
  const report = await fetch(`${virtual.worker.statusUrl()}/api/status`);
  const { sources } = (await report.json()) as { readonly sources: readonly { readonly setAside: unknown[] }[] };
  expect(sources.flatMap(({ setAside }) => setAside)).toEqual([]);
});
