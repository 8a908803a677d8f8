import { describe, expect, test } from "vitest";
import { readStateOptions } from "#src/app/config/load.ts";

const URL = "postgresql://plenum@127.0.0.1/plenum";

describe("readStateSection (the section state of a broken configuration)", () => {
  test.each([
    ["an unclosed list after the section", "state:\n  folder: /srv/state\nsinks: [\n", "/srv/state"],
    ["a broken section before the section", "sources: { main: [ }\nstate: { folder: /srv/state }\n", "/srv/state"],
    ["an unknown key in the section", "state: { folder: /srv/state, colour: red }\n", "/srv/state"],
    ["a variable that is set", `state: { folder: '\${FOLDER}' }\nx: [\n`, "/var/state"],
    ["a variable that is not set", `state: { folder: '\${NONE}' }\n`, null],
    ["no folder", "state: { max_age: 7 }\n", null],
    ["no characters", "", null],
    ["bytes that are not YAML", "\u0000\u0001", null],
  ])("reads the state folder from a text with %s", (_, text, folder) => {
    expect(readStateOptions(text, { FOLDER: "/var/state" }).folder).toBe(folder);
  });

  test("recognizes a fleet even if the database address is invalid or an unset variable", () => {
    const readState = (postgres: string) => readStateOptions(`state: { folder: s, postgres: ${postgres} }\nx: [\n`, {});
    expect(readState(`{ url: "${URL}" }`)).toMatchObject({ isFleet: true, postgres: { url: URL } });
    expect(readState("{ url: 7 }")).toMatchObject({ isFleet: true, postgres: null });
    expect(readState(`{ url: '\${NONE}' }`)).toMatchObject({ isFleet: true, postgres: null });
    expect(readStateOptions("state: { folder: s }\n", {}).isFleet).toBe(false);
  });
});
