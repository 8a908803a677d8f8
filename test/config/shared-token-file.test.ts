import { linkSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { readSecret, SecretRef } from "#src/core/runtime/secret.ts";
import { testFolder } from "../test-resources.ts";

let folder: string;
beforeEach(() => {
  folder = testFolder("lent");
  writeFileSync(join(folder, "token"), "service-token-0123456789", { mode: 0o600 });
});

function refusedPaths(secret: string): readonly string[] {
  const main = { base_url: "https://a.example", token: { file: join(folder, "token") }, time_zone: "UTC" };
  const webhook = { url: "https://hooks.example.com/a", unsigned: true, headers: { "x-key": { file: secret } } };
  const { error } = Config.safeParse({ sources: { main }, sinks: { hook: { webhook } } });
  return error?.issues.map(({ path }) => path.join(".")) ?? [];
}

const HEADER = "sinks.hook.webhook.headers.x-key";

test("the configuration may not use a source's token file as a sink's secret, also under another spelling, through links or as a hard link", () => {
  const token = join(folder, "token");
  mkdirSync(join(folder, "more"));
  symlinkSync(token, join(folder, "link"));
  symlinkSync(folder, join(folder, "more", "up"));
  linkSync(token, join(folder, "hard"));
  const names = [
    token,
    `${folder}/more/../token`,
    relative(process.cwd(), token),
    join(folder, "link"),
    join(folder, "more", "up", "token"),
    join(folder, "hard"),
  ];
  for (const name of names) expect(refusedPaths(name), name).toEqual([HEADER]);
});

test("the configuration may use a separate secret file for a sink, whether or not the file exists", () => {
  writeFileSync(join(folder, "other"), "another secret", { mode: 0o600 });
  expect(refusedPaths(join(folder, "other"))).toEqual([]);
  expect(refusedPaths(join(folder, "later"))).toEqual([]);
});

test("the configuration may not use a source's token file as a sink's secret before the file exists", () => {
  rmSync(join(folder, "token"));
  expect(refusedPaths(join(folder, "token"))).toEqual([HEADER]);
});

test.skipIf(process.platform === "win32")(
  "readSecret rejects a secret file that became a link to /proc after the check",
  () => {
    const file = join(folder, "later");
    const ref = SecretRef.parse({ file });
    symlinkSync("/proc/self/environ", file);
    expect(() => readSecret(ref)).toThrow(/is refused/);
    expect(SecretRef.safeParse({ file }).success).toBe(false);
  },
);
