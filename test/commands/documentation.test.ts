import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { COMMAND_OUTCOMES } from "#src/core/model/command-facts.ts";
import { ENDINGS, REFUSALS } from "#src/engine/commands/command.ts";
import { CommandsConfig } from "#src/engine/commands/config.ts";
import { SITE } from "./rig.ts";
import { testRig } from "./test-rig.ts";

const page = readFileSync(join(import.meta.dirname, "../../docs/commands.md"), "utf8");

function rowsBelow(heading: string): readonly string[] {
  const section = page.split(/^## /m).find((part) => part.startsWith(heading)) ?? "";
  return [...section.matchAll(/^\| `([a-z-]+)` \|/gm)].map((match) => match[1] ?? "");
}

describe("docs/commands.md", () => {
  test("explains every outcome and every reason, with the reasons in the order of the checks", () => {
    expect(rowsBelow("The answer").toSorted()).toEqual([...COMMAND_OUTCOMES].toSorted());
    expect(rowsBelow("Reasons")).toEqual([...REFUSALS, ...ENDINGS]);
  });

  test("shows a valid configuration", () => {
    const block = /<!-- configuration -->\s*```yaml\n([^`]*)```/.exec(page)?.[1] ?? "";
    const { commands } = parse(block) as { readonly commands: unknown };
    expect(CommandsConfig.parse(commands).allow).toHaveLength(1);
  });

  test("shows a valid two-person rule", () => {
    const block = /<!-- approval -->\s*```yaml\n([^`]*)```/.exec(page)?.[1] ?? "";
    const { commands } = parse(block) as { readonly commands: unknown };
    expect(CommandsConfig.parse(commands).approval?.needed).toBe(1);
  });

  const examples = [...page.matchAll(/<!-- example (\w+)(?: on tag (\d+))? -->\s*```json\n([^`]*)```/g)].map(
    ([, expected = "", tag = null, payload = ""]) => ({ expected, tag, payload: payload.trim() }),
  );

  test("has six examples of commands", () => {
    expect(examples.length).toBe(6);
    expect([...page.matchAll(/```json/g)]).toHaveLength(examples.length + 1);
  });

  test("shows an agreement of a second person that the worker accepts", async () => {
    const rig = await testRig();
    const entry = { site_id: SITE, type: "number" as const, min: 15, max: 25, second_person: true };
    await rig.restart({ allow: [{ ...entry, tag_id: "10250" }] });
    await rig.send({ id: "set-7", tag: "10250", value: 22 });
    const word = /<!-- second -->\s*```json\n([^`]*)```/.exec(page)?.[1] ?? "";
    await rig.send(word.trim(), { purpose: "second" });
    await rig.clock.advance(10_000);
    expect((await rig.result("set-7"))?.outcome).toBe("confirmed");
  });

  test.each(examples)("shows the command $payload with the result $expected", async ({ expected, tag, payload }) => {
    const rig = await testRig();
    const entry = { site_id: SITE, type: "number" as const, min: 15, max: 25, max_step: 3, restore: true };
    await rig.restart({ allow: ["10250", "10251"].map((tag_id) => ({ ...entry, tag_id })) });
    await rig.send(payload, { tagId: tag });
    await rig.clock.advance(10_000);
    if (expected === "stop") {
      expect(rig.killSwitch.thrown()).toBe(true);
      return;
    }
    const results = await rig.results();
    expect(results.length).toBeGreaterThan(0);
    for (const result of results) expect(result.outcome, result.message).toBe(expected);
  });
});
