import { chmodSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createTokenReader } from "#src/engine/source/send-request.ts";
import { temporaryFolder } from "../real-servers.ts";

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

const clock = systemClock;
const revealed = () => createTokenReader({ file }, clock)().reveal();

describe("a token in a file", () => {
  it("a token is read from its file without the line end, and is not printed", () => {
    const secret = createTokenReader({ file }, clock)();
    expect(secret.reveal()).toBe("17|first");
    expect([String(secret), JSON.stringify({ secret }), inspect(secret)].join()).not.toContain("first");
  });

  it.each([0o644, 0o640, 0o604, 0o660, 0o620])(
    "a token file with mode %o is rejected with the command that corrects the mode",
    (mode) => {
      put("17|first\n", mode);
      expect(revealed).toThrow(expect.objectContaining({ kind: "config", hint: `Run: chmod 600 ${file}` }));
    },
  );

  it("a token file is read again after a change, even with the same time and size", () => {
    utimesSync(file, 1000, 1000);
    expect(revealed()).toBe("17|first");
    put("17|other\n");
    utimesSync(file, 1000, 1000);
    expect(revealed()).toBe("17|other");
  });

  it.each(["", "  \n", "two words", "line\nbreak", "schlüssel"])(
    "a token file with the text %j is rejected, and the error does not repeat the text",
    (text) => {
      put(text);
      try {
        revealed();
        expect.unreachable();
      } catch (error) {
        expect(error).toMatchObject({ kind: "config", hint: expect.stringMatching(/\w/) });
        if (text.trim() !== "") expect(errorText(error)).not.toContain(text);
      }
    },
  );

  it("a missing token file is a configuration error", () => {
    rmSync(file);
    expect(revealed).toThrow(expect.objectContaining({ kind: "config" }));
  });
});

it("createTokenReader reads a token from the environment, and rejects a missing variable", () => {
  expect(createTokenReader({ env: "T" }, clock, { T: " 17|x " })().reveal()).toBe("17|x");
  expect(() => createTokenReader({ env: "T" }, clock, {})()).toThrow(expect.objectContaining({ kind: "config" }));
});
