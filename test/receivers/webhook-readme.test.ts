import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import type { ReceiverFormat } from "#connectors/webhook/formats/format.ts";
import { ALARM_FORMATS, FORMAT_NAMES } from "#connectors/webhook/formats/format-by-name.ts";
import { createTemplateFormat, TEMPLATE_FIELDS } from "#connectors/webhook/formats/template.ts";
import { alarmMessage } from "./sent-samples.ts";

const readme = readFileSync(join(import.meta.dirname, "../../connectors/webhook/formats/README.md"), "utf8");
const sections = new Map(readme.split("\n## ").map((text) => [text.slice(0, text.indexOf("\n")), text]));

function listCodeBlocks(section: string, language: string): readonly string[] {
  return [...section.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, "gs"))].map(([, text = ""]) => text);
}

function differences(sample: unknown, sent: unknown, path = "$"): readonly string[] {
  if (typeof sample === "string" && sample.endsWith("…") && typeof sent === "string")
    return sent.startsWith(sample.slice(0, -1)) ? [] : [path];
  if (Array.isArray(sample) && Array.isArray(sent)) {
    return sample.flatMap((each, n) =>
      sent.some((one) => differences(each, one).length === 0) ? [] : [`${path}[${n}]`],
    );
  }
  if (typeof sample === "object" && sample !== null && typeof sent === "object" && sent !== null) {
    return Object.entries(sample).flatMap(([key, value]) =>
      key === "…" ? [] : differences(value, (sent as Record<string, unknown>)[key], `${path}.${key}`),
    );
  }
  return sample === sent ? [] : [path];
}

describe.each([...FORMAT_NAMES, "template"] as const)("the webhook format %s", (name) => {
  const section = sections.get(name) ?? "";
  const examples = listCodeBlocks(section, "yaml").map((text) => (parse(text) as { webhook: unknown }).webhook);

  test("has a section, a table row and one valid example in the README", () => {
    expect(readme).toContain(`| [\`${name}\`](#${name}) |`);
    expect(section).toContain(name === "template" ? "Use your own requests" : "The receiver shows ");
    expect(examples).toHaveLength(1);
    const { success, error } = WebhookConfig.safeParse(examples[0]);
    expect(success, error?.message).toBe(true);
    expect((examples[0] as { format: string }).format).toBe(name);
  });

  test("sends the request that the README shows as sample", () => {
    const [sample] = listCodeBlocks(section, "json");
    const { template } = WebhookConfig.parse(examples[0]);
    const format: ReceiverFormat =
      name === "template" && template !== undefined
        ? createTemplateFormat(template)
        : ALARM_FORMATS[name as keyof typeof ALARM_FORMATS].format;
    const message = format.buildRequest(alarmMessage({ link: "https://plenum.example.com/" }), "open", {
      url: new URL("https://receiver.example.com/heating"),
      key: "k",
      name: "pager",
      reference: null,
      nowMs: 0,
    });
    expect(differences(JSON.parse(sample ?? "null"), message?.json)).toEqual([]);
  });
});

test("the README lists all formats in its table and all fields of templates", () => {
  const listedNames = [...readme.matchAll(/^\| \[`([a-z-]+)`\]\(#/gm)].map(([, name]) => name);
  expect(listedNames).toEqual([...FORMAT_NAMES, "template"]);
  const section = sections.get("template") ?? "";
  const list = section.slice(section.indexOf("\nFields: "));
  for (const field of TEMPLATE_FIELDS.filter((each) => !each.startsWith("place."))) {
    const [group = ""] = field.split(".");
    expect(list.includes(`\`${field}\``) || list.includes(`\`${group}.…\``), field).toBe(true);
  }
});
