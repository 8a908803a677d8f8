import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { COMMAND_OUTCOMES } from "#src/core/model/command-event-data.ts";
import { COMMAND_ENDING_REASONS, COMMAND_REFUSAL_REASONS } from "#src/engine/commands/command.ts";
import { CommandsConfig } from "#src/engine/commands/config.ts";
import { allowed, openHarness } from "./test-harness.ts";

const page = readFileSync(join(import.meta.dirname, "../../docs/commands.md"), "utf8");

function rowsBelow(heading: string): readonly string[] {
  const section = page.split(/^## /m).find((part) => part.startsWith(heading)) ?? "";
  return [...section.matchAll(/^\| `([a-z-]+)` \|/gm)].map((match) => match[1] ?? "");
}

describe("docs/commands.md", () => {
  test("explains every outcome and every reason, with the reasons in the order of the checks", () => {
    expect(rowsBelow("Results").toSorted()).toEqual([...COMMAND_OUTCOMES].toSorted());
    expect(rowsBelow("Reasons")).toEqual([...COMMAND_REFUSAL_REASONS, ...COMMAND_ENDING_REASONS]);
  });

  test.each([
    ["configuration", { allow: [{}] }],
    ["approval", { approval: { needed: 1 } }],
  ])("shows a valid %s as an example", (name, expected) => {
    const block = new RegExp(`<!-- ${name} -->\\s*\`{3}yaml\\n([^\`]*)\`{3}`).exec(page)?.[1] ?? "";
    const { commands } = parse(block) as { readonly commands: unknown };
    expect(CommandsConfig.parse(commands)).toMatchObject(expected);
  });

  const examples = [...page.matchAll(/<!-- example (\w+)(?: on tag (\d+))? -->\s*```json\n([^`]*)```/g)].map(
    ([, expected = "", tag = null, payload = ""]) => ({ expected, tag, payload: payload.trim() }),
  );

  test("has six examples of commands", () => {
    expect(examples.length).toBe(6);
    expect([...page.matchAll(/```json/g)]).toHaveLength(examples.length + 1);
  });

  test("shows an example of a second person's agreement that the worker accepts", async () => {
    const harness = await openHarness({ config: { allow: [allowed("10250", { second_person: true })] } });
    await harness.send({ id: "set-7", tag: "10250", value: 22 });
    const word = /<!-- second -->\s*```json\n([^`]*)```/.exec(page)?.[1] ?? "";
    await harness.execute(word.trim(), { purpose: "second" }, 10_000);
    expect(await harness.outcomes()).toEqual(["set-7 confirmed"]);
  });

  test.each(examples)("shows the command $payload with the result $expected", async ({ expected, tag, payload }) => {
    const allow = ["10250", "10251"].map((tag_id) => allowed(tag_id, { max_step: 3, restore: true, plain: true }));
    const harness = await openHarness({ config: { allow } });
    await harness.execute(payload, { tagId: tag }, 10_000);
    if (expected === "stop") return expect(harness.killSwitch.isOn()).toBe(true);
    const results = await harness.results();
    expect(results.length).toBeGreaterThan(0);
    for (const result of results) expect(result.outcome, result.message).toBe(expected);
  });
});
