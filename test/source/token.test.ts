import { utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createTokenReader } from "#src/engine/source/send-request.ts";
import { testFolder } from "../test-resources.ts";

let file = "";
beforeEach(() => {
  file = join(testFolder("token"), "token");
});

const put = (text: string) => writeFileSync(file, text, { mode: 0o600 });
const clock = systemClock;
const revealed = () => createTokenReader({ file }, clock)().reveal();

describe("a token in a file", () => {
  it("a token file is read without its line end, and again after a change, even with the same time and size", () => {
    put("17|first\n");
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
});

it("createTokenReader reads a token from the environment, and rejects a missing variable", () => {
  expect(createTokenReader({ env: "T" }, clock, { T: " 17|x " })().reveal()).toBe("17|x");
  expect(() => createTokenReader({ env: "T" }, clock, {})()).toThrow(expect.objectContaining({ kind: "config" }));
});
