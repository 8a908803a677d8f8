import { describe, expect, test } from "vitest";
import { buildMail } from "#connectors/email/mail.ts";
import { ADF_FORMAT, renderDescription as issueOf, WIKI_FORMAT } from "#connectors/jira/body.ts";
import { formatDescription as recordOf } from "#connectors/servicenow/receiver.ts";
import { computeIncidentKey, type IncidentMessage } from "#connectors/shared/receiver/receiver.ts";
import { withFewerTimeSeries } from "#connectors/shared/receiver/text.ts";
import { buildMessage, FULL_SIZES, SMALL_SIZES } from "#connectors/slack/receiver.ts";
import { ALARM_FORMATS, FORMAT_NAMES, type FormatName } from "#connectors/webhook/formats/by-name.ts";
import { createFieldReader } from "#connectors/webhook/formats/template.ts";
import { gatewayOf, toldOf } from "./sent-samples.ts";

const HEADING = "Values until 2026-11-02 07:15:04 +01:00";
const line = (n: number, name = `VS1-GT${n}`) => `${name} ▇▆▅▄\u00a0\u00a0▁▁ 18.2–21.4 °C, last 18.2, 3 h`;
const twenty = (name?: string) => [HEADING, ...Array.from({ length: 20 }, (_, n) => line(n, name))];

const withSeries = (incident: IncidentMessage, curves: readonly string[]): IncidentMessage => ({
  ...incident,
  text: { ...incident.text, curves },
});
const withDescription = (length: number): IncidentMessage => {
  const { text, ...incident } = toldOf();
  const description = { label: "Description", text: "x".repeat(length) };
  return { ...incident, text: { ...text, fields: [...text.fields, description] } };
};

const formatted = (name: FormatName) => (incident: IncidentMessage) => {
  const url = new URL(name === "ntfy" ? "https://ntfy.example.com/heating" : "https://example.com/in");
  const at = { url, key: "key", name: "pager", reference: null, nowMs: 0 };
  return JSON.stringify(ALARM_FORMATS[name].format.buildRequest(incident, "open", at)?.json);
};
const asText = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body));

test("withFewerTimeSeries drops time series from the end, and the heading with the last series", () => {
  const texts = withFewerTimeSeries({ curves: [HEADING, "a", "b"] });
  expect(texts.map(({ curves }) => curves)).toEqual([[HEADING, "a", "b"], [HEADING, "a"], []]);
  expect(withFewerTimeSeries({ curves: [] })).toEqual([{ curves: [] }]);
});

const FIELDS = Array.from({ length: 7 }, () => ({ label: "Description", text: "x".repeat(3_990) }));
const longFields = { ...toldOf(), text: { ...toldOf().text, fields: FIELDS } };
const storm = gatewayOf(30, { key: computeIncidentKey("main", "gateway", "8") });
const longList = { ...storm, text: { ...storm.text, list: Array<string>(21).fill("x".repeat(150)) } };

test.each<[string, number, IncidentMessage, (incident: IncidentMessage) => string]>([
  ["jira cloud", 32_000, longFields, (incident) => asText(issueOf(incident, ADF_FORMAT))],
  ["jira data center", 32_000, longFields, (incident) => asText(issueOf(incident, WIKI_FORMAT))],
  ["servicenow", 4_000, withDescription(2_500), recordOf],
  ["discord", 6_000, longList, formatted("discord")],
  ["teams", 20_000, longList, formatted("teams")],
  ["googlechat", 32_000, longList, formatted("googlechat")],
  ["mattermost", 16_383, longList, formatted("mattermost")],
])("%s: drops time series and no other text from a message of more than %i characters", (_, most, incident, textOf) => {
  const all = [HEADING, ...Array<string>(Math.ceil(most / 40)).fill(line(1))];
  const text = textOf(withSeries(incident, all));
  const countOf = (each: string) => each.split("x".repeat(150)).length;
  expect(countOf(text)).toBe(countOf(textOf(incident)));
  const shown = text.split("VS1-GT1 ").length - 1;
  expect(shown).toBeGreaterThan(0);
  expect(shown).toBeLessThan(all.length - 1);
});

test.each(FORMAT_NAMES)("%s: has the time series after the fields", (name) => {
  const text = formatted(name)(withSeries(toldOf(), [HEADING, line(1)]));
  expect(text).toContain("▇▆▅▄\u00a0\u00a0▁▁ 18.2–21.4 °C, last 18.2, 3 h");
  expect(text.indexOf("Values until 2026-11-02 07:15:04")).toBeGreaterThan(text.indexOf("Priority"));
});

describe("time series in a Slack message", () => {
  const sections = (incident: IncidentMessage, sizes = FULL_SIZES) =>
    buildMessage(incident, sizes).blocks.flatMap((block) =>
      "text" in block && block.text.text.includes("▁") ? [block.text] : [],
    );

  test("are a section of plain text before the link", () => {
    const incident = withSeries(toldOf(), twenty());
    expect(sections(incident)).toEqual([{ type: "plain_text", text: twenty().join("\n"), emoji: false }]);
    const blockTypes = buildMessage(incident, FULL_SIZES).blocks.map(({ type }) => type);
    expect(blockTypes).toEqual(["header", "section", "section", "context"]);
  });

  test("have complete lines of at most 3,000 escaped characters, and are omitted from the small message", () => {
    const incident = withSeries(toldOf(), twenty("<".repeat(60)));
    const text = sections(incident)[0]?.text ?? "";
    expect(text.length).toBeLessThanOrEqual(3_000);
    const lines = text.split("\n");
    expect(lines.length).toBeGreaterThan(8);
    expect(lines.slice(1).every((each) => each.startsWith("&lt;") && each.endsWith(", 3 h"))).toBe(true);
    expect(sections(incident, SMALL_SIZES)).toEqual([]);
  });
});

describe("time series in a fixed-width block", () => {
  test("have no markup in email", () => {
    const config = { from: "plenum@example.com", to: ["a@example.com"], cc: [], subject_prefix: "" };
    const mail = buildMail(withSeries(toldOf(), [HEADING, line(1, "<b>VS1</b>")]), "title", config, 0);
    expect(mail.text).toContain(`\n\n${HEADING}\n${line(1, "<b>VS1</b>")}\n\n`);
    expect(mail.html).toContain(`<pre>${HEADING}\n${line(1, "&lt;b&gt;VS1&lt;/b&gt;")}</pre>`);
    expect(buildMail(toldOf(), "title", config, 0).html).not.toContain("<pre>");
  });

  test("have no markup in jira", () => {
    const name = "{noformat}[~ola]";
    const { content } = issueOf(withSeries(toldOf(), [HEADING, line(1, name)]), ADF_FORMAT) as {
      content: readonly unknown[];
    };
    const code = { type: "codeBlock", content: [{ type: "text", text: `${HEADING}\n${line(1, name)}` }] };
    expect(content.at(-2)).toEqual(code);
    const text = String(issueOf(withSeries(toldOf(), [HEADING, line(1, name)]), WIKI_FORMAT));
    expect(text).toContain(`{noformat}\n${HEADING}\n${line(1, "{ noformat}[ ~ola]")}\n{noformat}\n`);
    expect(text.split("{noformat}")).toHaveLength(3);
  });

  test("have no markup in servicenow", () => {
    const text = recordOf(withSeries(toldOf(), [HEADING, line(1, "[code]<b>[/code]")]));
    expect(text).toContain(`\n\n${HEADING}\n${line(1, "[ code]<b>[ /code]")}\n\nOpen in Plenum: https://`);
    const long = withDescription(9_000);
    expect(recordOf(withSeries(long, twenty()))).toBe(recordOf(long));
  });
});

test("pagerduty sends time series as details, a template has a field for them, and ntfy cuts the end of the text", () => {
  const incident = withSeries(toldOf(), [HEADING, line(1)]);
  expect(JSON.parse(formatted("pagerduty")(incident)).payload.custom_details.values).toEqual([HEADING, line(1)]);
  expect(JSON.parse(formatted("pagerduty")(toldOf())).payload.custom_details).not.toHaveProperty("values");
  const field = createFieldReader(incident, null);
  expect(field("curves")).toEqual([HEADING, line(1)]);
  expect(field("text")).toMatch(/\nValues until .*\nVS1-GT1 ▇.*, 3 h$/);
  const { message } = JSON.parse(formatted("ntfy")(withSeries(toldOf(), twenty("å".repeat(60))))) as {
    message: string;
  };
  expect(Buffer.byteLength(message)).toBeLessThanOrEqual(3_000);
  expect(message).toMatch(/Priority: A.*…$/s);
});
