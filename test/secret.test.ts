import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseYaml } from "#src/app/config/load.ts";
import { ConfigError, errorText } from "#src/core/errors/errors.ts";
import { readSecret, readSecretFileStamp, SecretRef } from "#src/core/runtime/secret.ts";
import { temporaryFolder } from "./real-servers.ts";

let folder: string;
beforeAll(() => {
  folder = temporaryFolder("secret");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, text: string, mode: number): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

test("readSecretFileStamp changes with the text, mode and absence of the file", () => {
  const path = file("stamped", "one", 0o644);
  const stamps = [readSecretFileStamp(path), readSecretFileStamp(path)];
  expect(stamps[1]).toBe(stamps[0]);
  chmodSync(path, 0o600);
  stamps.push(readSecretFileStamp(path));
  writeFileSync(path, "another");
  stamps.push(readSecretFileStamp(path));
  rmSync(path);
  stamps.push(readSecretFileStamp(path));
  expect(new Set(stamps).size).toBe(4);
});

describe("a secret", () => {
  test.each([0o600, 0o400, 0o440])("is read from a file of mode %o, without the line break at its end", (mode) => {
    expect(readSecret({ file: file(`good-${mode}`, "s3cret \n", mode) }).reveal()).toBe("s3cret ");
  });

  test.each([0o644, 0o640, 0o604, 0o460, 0o441])(
    "is rejected in a file of mode %o, and the error says what to do",
    (mode) => {
      const path = file(`open-${mode}`, "s3cret", mode);
      const error = thrown(() => readSecret({ file: path }));
      expect(error.message).toContain("others than its owner");
      expect(error.hint).toBe(`Run: chmod 600 ${path}`);
      expect(inspect(error)).not.toContain("s3cret");
    },
  );

  test.skipIf(process.getuid?.() !== 0)("is accepted from another user's file of mode 640, not of a wider mode", () => {
    const path = file("handed-out", "s3cret", 0o640);
    chownSync(path, 65_534, 0);
    expect(readSecret({ file: path }).reveal()).toBe("s3cret");
    for (const mode of [0o644, 0o660, 0o642]) {
      chmodSync(path, mode);
      expect(thrown(() => readSecret({ file: path })).message).toContain("others than its owner");
    }
  });

  test.skipIf(process.platform === "win32")("is rejected without waiting when its file is a pipe", () => {
    const path = join(folder, "pipe");
    spawnSync("mkfifo", ["-m", "600", path]);
    expect(thrown(() => readSecret({ file: path }))).toMatchObject({
      message: expect.stringContaining("a pipe"),
      hint: expect.stringContaining("write the secret into a file"),
    });
  });

  test("is rejected when the file is missing, empty, huge or a folder", () => {
    expect(thrown(() => readSecret({ file: join(folder, "absent") })).message).toContain("ENOENT");
    expect(thrown(() => readSecret({ file: file("empty", "\n", 0o600) })).message).toContain("is empty");
    expect(thrown(() => readSecret({ file: file("huge", "x".repeat(70_000), 0o600) })).message).toContain("larger");
    mkdirSync(join(folder, "folder"), { mode: 0o700 });
    expect(thrown(() => readSecret({ file: join(folder, "folder") })).message).toContain("EISDIR");
  });

  test("is read from the credentials folder of systemd", () => {
    file("token", "s3cret", 0o440);
    const text = `file: "\${CREDENTIALS_DIRECTORY}/token"`;
    const environment = { CREDENTIALS_DIRECTORY: folder };
    const ref = parseYaml({ schema: SecretRef, file: "plenum.yaml", text, environment });
    expect(readSecret(ref).reveal()).toBe("s3cret");
    expect(() => parseYaml({ schema: SecretRef, file: "plenum.yaml", text, environment: {} })).toThrow(
      /CREDENTIALS_DIRECTORY/,
    );
  });

  test("is read from the environment, or reported missing by name", () => {
    expect(readSecret({ env: "PW" }, { PW: "s3cret" }).reveal()).toBe("s3cret");
    expect(thrown(() => readSecret({ env: "PW" }, {})).message).toContain("PW is not set");
  });

  test("is not printed by string conversion, JSON or inspect", () => {
    const secret = readSecret({ env: "PW" }, { PW: "s3cret" });
    expect(`${secret} ${JSON.stringify({ secret })} ${inspect(secret)}`).not.toContain("s3cret");
  });

  test.each([
    "17|Zk3mPq8sT1vX4yB6nD9f",
    "17|zkmpqstvxybndfghjklw",
    "Zk3mPq8sT1vX4yB6nD9f",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV",
    "x1".repeat(200),
  ])("is not printed when it is given as a path: %s", (text) => {
    expect(errorTexts(() => readSecret({ file: text }))).not.toContain(text);
    expect(thrown(() => readSecret({ file: text })).message).toBe(
      "A secret itself seems to stand where the path of its file belongs.",
    );
  });

  test("is not printed when it is given as a variable name", () => {
    const text = "Zk3mPq8sT1vX4yB6nD9f";
    expect(errorTexts(() => readSecret({ env: text }, {}))).not.toContain(text);
    expect(thrown(() => readSecret({ env: text }, {})).message).toBe(
      "A secret itself seems to stand where the variable's name belongs.",
    );
    expect(readSecret({ env: text }, { [text]: "s3cret" }).reveal()).toBe("s3cret");
  });

  test.each([
    { file: "plenum-token-of-house12" },
    { file: "Hw7cRj2gLb5tKd8zVx1q.txt" },
    { file: "secrets/Hw7cRj2gLb5tKd8zVx1q" },
    { file: "nothingbutletterswithoutend" },
    { env: "PLENUM_TOKEN_OF_HOUSE_12" },
    { env: "PLENUM_S3_SECRET_ACCESS_KEY" },
  ])("is reported missing by its path or variable name: %j", (ref) => {
    const [name = ""] = Object.values(ref);
    expect(thrown(() => readSecret(ref, {})).message).toContain(name);
  });

  test("is read from a file whose name looks like a token", () => {
    const name = "Zk3mPq8sT1vX4yB6nD9f";
    const earlierFolder = process.cwd();
    file(name, "s3cret", 0o600);
    process.chdir(folder);
    try {
      expect(readSecret({ file: name }).reveal()).toBe("s3cret");
    } finally {
      process.chdir(earlierFolder);
    }
  });

  test("must be a reference to a file or environment variable in the configuration", () => {
    expect(SecretRef.safeParse("s3cret").error?.issues[0]?.message).toContain("{file: path}");
    expect(SecretRef.safeParse({ env: "not a name" }).success).toBe(false);
    expect(SecretRef.safeParse({ file: "a", env: "B" }).success).toBe(false);
    expect(SecretRef.parse({ env: "PW" })).toEqual({ env: "PW" });
  });
});

function errorTexts(action: () => unknown): string {
  const error = thrown(action);
  return `${errorText(error)} ${error.stack} ${inspect(error, { depth: 5 })}`;
}

function thrown(action: () => unknown): ConfigError {
  try {
    action();
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error("Nothing was thrown.");
}
