import { describe, expect, test } from "vitest";
import { allFindings, differences, entryOf, findingsIn, titleFindings } from "../../tools/plain-words.ts";
import allowed from "./allowed.json" with { type: "json" };

const wordsIn = (file: string, text: string) => findingsIn(file, text).map(({ line, words }) => `${line} ${words}`);

test("each package and page has exactly as many wording findings as allowed.json lists", () => {
  expect(differences(allFindings(), allowed.findings)).toEqual([]);
});

describe("comparing wording findings with the numbers in allowed.json", () => {
  const found = new Map([["src/app", ["src/app/worker.ts:1 “anew”: again"]]]);

  test.each<[string, Record<string, number>, string | null]>([
    ["nothing for as many findings as listed", { "src/app": 1 }, null],
    ["one finding more than listed", {}, "src/app has 1 findings, test/words/allowed.json allows 0"],
    ["one finding less than listed", { "src/app": 2 }, "lower the number"],
    ["a listed file without findings", { "src/app": 1, "docs/gone.md": 3 }, "docs/gone.md has 0 findings, test/words"],
  ])("reports %s", (_, list, sentence) => {
    const expected = sentence === null ? [] : [expect.stringContaining(sentence)];
    expect(differences(found, list)).toEqual(expected);
  });

  test.each([
    ["src/engine/sync/plan/next-read-group.ts", "src/engine/sync/plan"],
    ["src/engine/sync/sync.ts", "src/engine/sync"],
    ["src/core/connector.ts", "src/core/connector.ts"],
    ["connectors/mqtt/sink.ts", "connectors/mqtt"],
    ["connectors/mqtt/README.md", "connectors/mqtt/README.md"],
    ["tools/release/main.ts", "tools"],
  ])("a finding in %s counts for the entry %s", (file, entry) => {
    expect(entryOf(file)).toBe(entry);
  });
});

describe("wording findings in program code", () => {
  test.each<[string, string, readonly string[]]>([
    ["a comment that begins with What", "/** What a sink gets. */", ["1 What"]],
    ["a block that begins on its second line", "\n/**\n * Of the first.\n */", ["3 Of"]],
    ["a banned word in a later line", "// Reads the file\n// and parses it anew.", ["2 anew"]],
    ["banned words across a line break", "// Events that no\n// one reads.", ["1 no one"]],
    ["a clause as the subject", "// Reads it. What is read is stored.", ["1 . What is"]],
    ["a comment behind code", "const a = 1; // nobody reads it", ["1 nobody"]],
    ["two comments next to each other", "a(); // What\n// Of", ["1 What", "2 Of"]],
  ])("include %s", (_, text, expected) => {
    expect(wordsIn("src/a.ts", text)).toEqual(expected);
  });

  test("a listed word in a string, in an address or at the start of a later line of a comment is no finding", () => {
    const text = '// Reads all parts\n// of the file.\nconst nobody = "http://anew // beside";';
    expect(wordsIn("src/a.ts", text)).toEqual([]);
  });
});

test("the word check of a Markdown page ignores code, comments and link addresses", () => {
  const page = "# A\n\n```sh\nanew\n```\n\n`beside` <!-- nobody --> [a](anew.md)\n\nA broker that nobody\nuses.\n";
  expect(wordsIn("docs/a.md", page)).toEqual(["9 nobody"]);
});

describe("the title of a commit", () => {
  test.each([
    "Cap list back-off at one request per minute",
    "Process rows in batches",
    "Seed the random tests",
    "Embed the schema",
  ])("is accepted: %s", (title) => {
    expect(titleFindings(title)).toEqual([]);
  });

  test.each([
    ["A limit of nothing that comes with an answer stops no list", "imperative"],
    ["Adds a test", "imperative"],
    ["Fixed the build", "imperative"],
    ["caps the back-off", "imperative"],
    ["Read the list anew", "again"],
    [`Cap ${"the back-off ".repeat(6)}`, "72"],
  ])("is rejected: %s", (title, finding) => {
    expect(titleFindings(title)).toEqual([expect.stringContaining(finding)]);
  });
});
