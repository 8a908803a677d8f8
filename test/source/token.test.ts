import { chmodSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { sentence } from "#src/errors.ts";
import { createToken } from "#src/source/token.ts";
import { temporaryFolder } from "../real-servers.ts";
import { failureOf, GOOD, never, reply, trialConfig, trialSource } from "./trial-source.ts";

let folder = "";
let file = "";
beforeEach(() => {
  folder = temporaryFolder("token");
  file = join(folder, "token");
  put("17|first\n");
});
afterEach(() => rmSync(folder, { recursive: true }));

function put(text: string, mode = 0o600) {
  writeFileSync(file, text);
  chmodSync(file, mode);
}

const revealed = async (token: ReturnType<typeof createToken>) => (await token.current()).reveal();

describe("a token in a file", () => {
  it("is read without the line end, and does not print", async () => {
    const secret = await createToken({ file }).current();
    expect(secret.reveal()).toBe("17|first");
    expect([`${secret}`, JSON.stringify({ secret }), inspect(secret)].join()).not.toContain("first");
  });

  it.each([0o644, 0o640, 0o604, 0o660, 0o620])(
    "with mode %o is refused, and told how to mend it",
    async (mode) => {
      put("17|first\n", mode);
      expect(sentence(await failureOf(createToken({ file }).current()))).toBe(
        `The token file ${file} can be read by other users. Run: chmod 600 ${file}`,
      );
    },
  );

  it("is not asked for its mode on Windows", async () => {
    put("17|first\n", 0o644);
    expect(await revealed(createToken({ file }, {}, "win32"))).toBe("17|first");
  });

  it("is read again when it changed", async () => {
    const token = createToken({ file });
    expect(await revealed(token)).toBe("17|first");
    put("17|second!\n");
    expect(await revealed(token)).toBe("17|second!");
  });

  it("is read again after a refusal, even when its time and size are the same", async () => {
    const token = createToken({ file });
    utimesSync(file, 1000, 1000);
    expect(await revealed(token)).toBe("17|first");
    put("17|other\n");
    utimesSync(file, 1000, 1000);
    expect(await revealed(token)).toBe("17|first");
    token.refused();
    expect(await revealed(token)).toBe("17|other");
  });

  it.each([
    ["", "There is no access token"],
    ["  \n", "There is no access token"],
    ["two words", "is not an access token"],
    ["line\nbreak", "is not an access token"],
    ["schlüssel", "is not an access token"],
  ])("%j is refused without repeating it", async (text, message) => {
    put(text);
    const failure = await failureOf(createToken({ file }).current());
    expect(failure).toMatchObject({ kind: "config" });
    expect(failure.message).toContain(message);
    if (text.trim() !== "") expect(failure.message).not.toContain(text);
  });

  it("that is missing is a matter of configuration", async () => {
    rmSync(file);
    expect(await failureOf(createToken({ file }).current())).toMatchObject({ kind: "config" });
  });
});

it("a token in the environment", async () => {
  expect(await revealed(createToken({ env: "T" }, { T: " 17|x " }))).toBe("17|x");
  expect((await failureOf(createToken({ env: "T" }, {}).current())).message).toBe(
    "There is no access token in the environment variable T.",
  );
});

it("after a 401 the next request carries the new token, without a restart", async () => {
  const config = trialConfig("https://service.example", { token: { file } });
  const trial = trialSource(
    (request) =>
      request.headers.authorization === "Bearer 17|later"
        ? reply(200, GOOD.read)
        : reply(200, { errors: [{ status: 401, message: "Unauthenticated." }] }),
    { config },
  );
  expect(await failureOf(trial.source.read(["1"], "live", never()))).toMatchObject({
    reason: "unauthenticated",
  });
  put("17|later\n");
  expect((await trial.source.read(["1"], "live", never())).readings).toHaveLength(1);
});
