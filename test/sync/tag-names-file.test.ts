import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { componentCodeLevels, splitComponentCode } from "#src/cli/building/tag-names-file-command.ts";
import { formatNamesFile, parseNamesFile } from "#src/engine/sync/inventory/tag-names-file.ts";
import { replay } from "../seed.ts";

const HEADER = "tag_id,path,alias,unit_code";
const KNOWN = new Set(["1", "2", "3", "77"]);
const INVISIBLE = "a control character or an invisible character";
const parse = (...lines: string[]) => parseNamesFile(Buffer.from([HEADER, ...lines].join("\n")), KNOWN);

describe("the names file", () => {
  test("gives a tag only the names whose cells are filled", () => {
    const { entries, problems } = parse('1,b1/432.001/OE001,"Energy, main",kW.h', "2,,Pump\r", "", "3");
    expect(problems).toEqual([]);
    expect([...entries]).toEqual([
      ["1", { alias: "Energy, main", path: "b1/432.001/OE001", unitCode: "kW.h" }],
      ["2", { alias: "Pump" }],
      ["3", {}],
    ]);
  });

  test.each([
    ["a path twice, in another case", ["1,b1/Pump", "2,B1/pump"], "Line 3: The path B1/pump is already in line 2."],
    ["a tag twice", ["1,a", "1,b"], "Line 3: The tag 1 is already in line 2."],
    ["the id of a known tag as alias", ["1,,77"], "Line 2: The alias 77 is the id of another tag."],
    ["the id of another tag in the file as alias", ["1,,9", "9"], "Line 2: The alias 9 is the id of another tag."],
    ["too many cells", ["1,a,b,c,d"], "Line 2: There are 5 cells, but only 4 columns."],
    ["a control character", ["1,a,b\u0007"], `Line 2: The cell alias contains ${INVISIBLE}.`],
    ["an invisible character", ["1,a\u200b"], `Line 2: The cell path contains ${INVISIBLE}.`],
    ["only spaces", ["1,  ,b"], "Line 2: The cell path contains only spaces."],
    [
      "300 characters",
      [`1,,${"n".repeat(300)}`],
      "Line 2: The cell alias has 300 characters, but at most 200 are allowed.",
    ],
    ["a wildcard", ["1,b1/#"], "Line 2: The cell path contains + or #, which MQTT reserves."],
    ["an empty level", ["1,/b1"], "Line 2: The cell path has an empty level."],
    ["no id", [",b1"], "Line 2: The cell tag_id is empty."],
    ["an open quotation mark", ['1,"b1'], "Line 2: A quotation mark is in the wrong place."],
  ])("is rejected with one sentence that names the line: %s", (_, lines, problem) => {
    expect(parse(...lines).problems).toEqual([problem]);
  });

  test.each([
    ["semicolons", Buffer.from("tag_id;path;alias;unit_code\n1;a;b;c")],
    ["no header", Buffer.from("1,a,b,c")],
    ["Latin-1", Buffer.from(`${HEADER}\n1,,Kjøling`, "latin1")],
    ["no content", Buffer.from("")],
  ])("is rejected if it has %s", (_, content) => {
    const problem = `Line 1: The header must be ${HEADER}, in UTF-8 and separated by commas.`;
    expect(parseNamesFile(content, KNOWN).problems).toEqual([problem]);
  });

  test("is accepted with an entry whose tag is unknown; that entry is reported", () => {
    const { entries, problems, unknownTags } = parse("1,a", "99,b");
    expect([entries.size, problems, unknownTags]).toEqual([2, [], ["Line 3: The source has no tag 99."]]);
    expect(parseNamesFile(Buffer.from(`${HEADER}\n99,b`), new Set()).unknownTags).toEqual([]);
  });

  test("has the same entries after it is formatted and parsed again", () => {
    const cell = fc
      .string({ unit: fc.constantFrom(..."aø,\"'.b "), minLength: 1 })
      .filter((text) => text === text.trim());
    const names = fc.record({ alias: cell, unitCode: cell }, { requiredKeys: [] });
    fc.assert(
      fc.property(fc.array(names), (list) => {
        const entries = new Map(list.map((each, index) => [`id ${index}`, each]));
        expect(parseNamesFile(Buffer.from(`\ufeff${formatNamesFile(entries)}`), new Set()).entries, replay).toEqual(
          entries,
        );
      }),
    );
  });
});

describe("splitComponentCode", () => {
  test.each([
    ["+b1=432.001-OE001_Energi", "b1 432.001 OE001_Energi"],
    ["+b1=432.001-OE001", "b1 432.001 OE001"],
    ["=432.001-OE001", "432.001 OE001"],
    ["562.001-RT903", "562.001 RT903"],
    ["320.001_Driftstatus", "320.001 Driftstatus"],
    ["320.001-SB401_%", "320.001 SB401_%"],
  ])("splits the tag name %s into building, system and component", (name, levels) => {
    const code = splitComponentCode(name);
    expect(code && componentCodeLevels(code).join(" ")).toBe(levels);
  });

  test.each([
    ...["", "RT901", "-LR401", "320.001", "b1=432.001", "+=432.001-OE001", "+b1=432.001", "432.001-OE001 Energi"],
    ...["Supply 432.001-OE001", "432.001-oe001", "4320.001-OE001", "+b/1=432.001-OE001", "432.001-OE001_a/b"],
    "A20-P2-APP019:NIE00108D0A91DD/N2 Trunk 1.320001.Analoge innganger.RP401.#85",
  ])("returns null for the tag name %j, which does not follow the naming scheme", (name) => {
    expect(splitComponentCode(name)).toBeNull();
  });

  test("splits every tag name of the recorded buildings and gives each tag of a site a distinct path", () => {
    const metadata = new URL("../../src/simulator/data/metadata.json", import.meta.url);
    const { tags } = JSON.parse(readFileSync(metadata, "utf8")) as {
      readonly tags: readonly { readonly site_id: number; readonly display_name: string }[];
    };
    const paths = tags.map(({ site_id, display_name }) => {
      const code = splitComponentCode(display_name);
      return `${site_id} ${code && componentCodeLevels(code).join("/")}`;
    });
    expect(paths.filter((path) => path.endsWith("null"))).toEqual([]);
    expect(new Set(paths).size).toBe(new Set(tags.map((tag) => `${tag.site_id} ${tag.display_name}`)).size);
  });
});
