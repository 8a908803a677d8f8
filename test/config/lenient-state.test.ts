import { describe, expect, test } from "vitest";
import { lenientState } from "#src/app/config/load.ts";

const URL = "postgresql://plenum@127.0.0.1/plenum";

describe("lenientState", () => {
  test.each([
    ["an unclosed list behind it", "state:\n  folder: /srv/state\nsinks: [\n", "/srv/state"],
    ["a broken section before it", "sources: { main: [ }\nstate: { folder: /srv/state }\n", "/srv/state"],
    ["an unknown key next to it", "state: { folder: /srv/state, colour: red }\n", "/srv/state"],
    ["a variable that is set", `state: { folder: '\${FOLDER}' }\nx: [\n`, "/var/state"],
    ["a variable that is not set", `state: { folder: '\${NONE}' }\n`, null],
    ["no folder", "state: { max_age: 7 }\n", null],
    ["a folder that is no text", "state: { folder: [a] }\n", null],
    ["no section", "sources: {}\n", null],
    ["nothing", "", null],
    ["no YAML at all", "\u0000\u0001", null],
  ])("is read with %s", (_, text, folder) => {
    expect(lenientState(text, { FOLDER: "/var/state" }).folder).toBe(folder);
  });

  test("recognizes a fleet, also when the address is invalid or unknown", () => {
    const read = (postgres: string) => lenientState(`state: { folder: s, postgres: ${postgres} }\nx: [\n`, {});
    expect(read(`{ url: "${URL}" }`)).toMatchObject({ isFleet: true, postgres: { url: URL } });
    expect(read("{ url: 7 }")).toMatchObject({ isFleet: true, postgres: null });
    expect(read(`{ url: '\${NONE}' }`)).toMatchObject({ isFleet: true, postgres: null });
    expect(lenientState("state: { folder: s }\n", {}).isFleet).toBe(false);
  });
});
