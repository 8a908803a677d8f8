import { describe, expect, test } from "vitest";
import { mailOf } from "#connectors/email/mail.ts";
import { ADF, descriptionOf as issueOf, WIKI } from "#connectors/jira/body.ts";
import { descriptionOf as recordOf } from "#connectors/servicenow/receiver.ts";
import { type IncidentMessage, incidentKey } from "#connectors/shared/receiver/receiver.ts";
import { withFewerTimeSeries } from "#connectors/shared/receiver/text.ts";
import { FULL, messageOf, SMALL } from "#connectors/slack/blocks.ts";
import { FORMAT_NAMES, FORMATS, type FormatName } from "#connectors/webhook/formats/by-name.ts";
import { fieldsOf } from "#connectors/webhook/formats/template.ts";
import { gatewayOf, toldOf } from "./told-samples.ts";

/** Where something has to go, the curves go first, each of them whole, the alarm's own last. */

const HEADING = "Values until 2026-11-02 07:15:04 +01:00";
const curve = (n: number, name = `VS1-GT${n}`) => `${name} ▇▆▅▄\u00a0\u00a0▁▁ 18.2–21.4 °C, last 18.2, 3 h`;
const twenty = (name?: string) => [HEADING, ...Array.from({ length: 20 }, (_, n) => curve(n, name))];

function withCurves(incident: IncidentMessage, curves: readonly string[], description?: string): IncidentMessage {
  const fields = [
    ...incident.text.fields,
    ...(description === undefined ? [] : [{ label: "Description", text: description }]),
  ];
  return { ...incident, text: { ...incident.text, fields, curves } };
}

const shownIn = (text: string) => text.split("\n").filter((line) => /[▁-█]/.test(line));

test("fewer and fewer, from the end, and never the heading alone", () => {
  const texts = withFewerTimeSeries({ curves: [HEADING, "a", "b"] });
  expect(texts.map(({ curves }) => curves)).toEqual([[HEADING, "a", "b"], [HEADING, "a"], []]);
  expect(withFewerTimeSeries({ curves: [] })).toEqual([{ curves: [] }]);
});

describe("slack", () => {
  const section = (incident: IncidentMessage, sizes = FULL) =>
    messageOf(incident, sizes).blocks.flatMap((block) =>
      "text" in block && block.text.text.includes("▁") ? [block.text] : [],
    );

  test("a section of plain text before the link", () => {
    const [text] = section(withCurves(toldOf(), twenty()));
    expect(text).toEqual({ type: "plain_text", text: twenty().join("\n"), emoji: false });
    const { blocks } = messageOf(withCurves(toldOf(), twenty()), FULL);
    expect(blocks.map(({ type }) => type)).toEqual(["header", "section", "section", "context"]);
  });

  test("at most 3,000 characters after escaping, whole lines; none in the small message", () => {
    const incident = withCurves(toldOf(), twenty("<".repeat(60)));
    const [text] = section(incident);
    expect(text?.text.length).toBeLessThanOrEqual(3_000);
    const lines = text?.text.split("\n") ?? [];
    expect(lines.length).toBeGreaterThan(8);
    expect(lines.slice(1).every((line) => line.startsWith("&lt;") && line.endsWith(", 3 h"))).toBe(true);
    expect(section(incident, SMALL)).toEqual([]);
  });
});

test("email: lines of the text, and one block of letters of one width in which nothing is markup", () => {
  const curves = [HEADING, curve(1, "<b>VS1</b>")];
  const config = { from: "plenum@example.com", to: ["a@example.com"], cc: [], subject_prefix: "" };
  const mail = mailOf(withCurves(toldOf(), curves), "title", config, 0);
  expect(mail.text).toContain(`\n\n${HEADING}\n${curve(1, "<b>VS1</b>")}\n\n`);
  expect(mail.html).toContain(`<pre>${HEADING}\n${curve(1, "&lt;b&gt;VS1&lt;/b&gt;")}</pre>`);
  expect(mailOf(toldOf(), "title", config, 0).html).not.toContain("<pre>");
});

describe("jira", () => {
  test("a block of code in a document, where nothing means anything", () => {
    const { content } = issueOf(withCurves(toldOf(), [HEADING, curve(1, "[~ola] {code}")]), ADF) as {
      readonly content: readonly unknown[];
    };
    expect(content.at(-2)).toEqual({
      type: "codeBlock",
      content: [{ type: "text", text: `${HEADING}\n${curve(1, "[~ola] {code}")}` }],
    });
  });

  test("wiki text that is shown as it is, and that a name cannot end", () => {
    const text = String(issueOf(withCurves(toldOf(), [HEADING, curve(1, "{noformat}[~ola]")]), WIKI));
    expect(text).toContain(`{noformat}\n${HEADING}\n${curve(1, "{ noformat}[ ~ola]")}\n{noformat}\n`);
    expect(text.split("{noformat}")).toHaveLength(3);
    expect(text).not.toContain("[~");
  });

  test.each([
    ["adf", ADF],
    ["wiki", WIKI],
  ])("%s: they go before any text is shortened", (_, format) => {
    const lines = Array.from({ length: 7 }, () => "x".repeat(3_990));
    const long = { ...toldOf().text, fields: lines.map((text) => ({ label: "Description", text })) };
    const incident = { ...toldOf(), text: { ...long, curves: [HEADING, ...Array<string>(99).fill(curve(1))] } };
    const body = issueOf(incident, format);
    const text = typeof body === "string" ? body : JSON.stringify(body);
    expect(text.length).toBeLessThanOrEqual(32_000);
    expect(text.split("x".repeat(3_990))).toHaveLength(8);
    expect(text.split("VS1-GT1 ").length - 1).toBeLessThan(99);
    expect(text.split("VS1-GT1 ").length - 1).toBeGreaterThan(10);
  });
});

describe("servicenow", () => {
  test("lines of the description, before the link, defused", () => {
    const text = recordOf(withCurves(toldOf(), [HEADING, curve(1, "[code]<b>[/code]")]));
    expect(text).toContain(`\n\n${HEADING}\n${curve(1, "[ code]<b>[ /code]")}\n\nOpen in Plenum: https://`);
  });

  test("of 4,000 characters they take what the texts leave, in whole lines", () => {
    for (const length of [10, 2_500, 3_300, 3_700]) {
      const description = "x".repeat(length);
      const text = recordOf(withCurves(toldOf(), twenty(), description));
      expect(text.length).toBeLessThanOrEqual(4_000);
      expect(text).toContain(description);
      expect(text).toContain("Open in Plenum: https://");
      const shown = shownIn(text);
      expect(shown).toEqual(twenty().slice(1, 1 + shown.length));
      expect(text.includes(HEADING)).toBe(shown.length > 0);
      if (length === 10) expect(shown).toHaveLength(20);
      if (length === 3_700) expect(shown).toEqual([]);
    }
  });

  test("a text that is too long by itself is shortened as without them", () => {
    const long = "x".repeat(9_000);
    expect(recordOf(withCurves(toldOf(), twenty(), long))).toBe(recordOf(withCurves(toldOf(), [], long)));
  });
});

describe("webhook", () => {
  const at = (name: FormatName) => ({
    url: new URL(name === "ntfy" ? "https://ntfy.example.com/heating" : "https://example.com/in"),
    key: "key",
    name: "pager",
    place: null,
    nowMs: 0,
  });
  const said = (name: FormatName, incident: IncidentMessage) =>
    JSON.stringify(FORMATS[name].format.requestFor(incident, "open", at(name))?.json);

  test.each(FORMAT_NAMES)("%s: an alarm is told with its curves", (name) => {
    const incident = withCurves(toldOf(), [HEADING, curve(1)]);
    const text = said(name, incident);
    expect(text).toContain("Values until 2026-11-02 07:15:04");
    expect(text).toContain("▇▆▅▄\u00a0\u00a0▁▁ 18.2–21.4 °C, last 18.2, 3 h");
    expect(text.indexOf("Values until")).toBeGreaterThan(text.indexOf("Priority"));
  });

  test("pagerduty: as a list of details", () => {
    const json = JSON.parse(said("pagerduty", withCurves(toldOf(), [HEADING, curve(1)])));
    expect(json.payload.custom_details.values).toEqual([HEADING, curve(1)]);
    expect(JSON.parse(said("pagerduty", toldOf())).payload.custom_details).not.toHaveProperty("values");
  });

  test("a template names them by themselves and in the text", () => {
    const field = fieldsOf(withCurves(toldOf(), [HEADING, curve(1)]), null);
    expect(field("curves")).toEqual([HEADING, curve(1)]);
    expect(field("text")).toMatch(/\nValues until .*\nVS1-GT1 ▇.*, 3 h$/);
  });

  test.each<[FormatName, number]>([
    ["discord", 6_000],
    ["teams", 20_000],
    ["googlechat", 32_000],
    ["mattermost", 16_383],
  ])("%s: they go before any text is shortened", (name, most) => {
    const storm = gatewayOf(30, { key: incidentKey("main", "gateway", "8") });
    const members = { ...storm, text: { ...storm.text, list: Array<string>(21).fill("x".repeat(150)) } };
    const many = Array<string>(Math.ceil(most / 40)).fill(curve(1));
    const text = said(name, withCurves(members, [HEADING, ...many]));
    expect(text.split("x".repeat(150))).toHaveLength(22);
    const shown = text.split("VS1-GT1 ").length - 1;
    expect(shown).toBeGreaterThan(0);
    expect(shown).toBeLessThan(many.length);
  });

  test("ntfy: the end is cut, where they are", () => {
    const incident = withCurves(toldOf(), twenty("å".repeat(60)));
    const { message } = JSON.parse(said("ntfy", incident)) as { readonly message: string };
    expect(Buffer.byteLength(message)).toBeLessThanOrEqual(3_000);
    expect(message).toContain("Priority: A");
    expect(message).toMatch(/…$/);
  });
});
