import { describe, expect, test } from "vitest";
import { buildIncidentMail } from "#connectors/email/incident-mail.ts";
import { ADF_FORMAT, renderDescription as renderIssue, WIKI_FORMAT } from "#connectors/jira/issue-text.ts";
import { formatDescription as renderRecord } from "#connectors/servicenow/receiver.ts";
import { listTextsWithFewerTimeSeries } from "#connectors/shared/receiver/message-texts.ts";
import { computeIncidentKey, type IncidentMessage } from "#connectors/shared/receiver/receiver-interface.ts";
import { buildMessage, FULL_TEXT_LENGTHS, SHORT_TEXT_LENGTHS } from "#connectors/slack/receiver.ts";
import { ALARM_FORMATS, FORMAT_NAMES, type FormatName } from "#connectors/webhook/formats/format-by-name.ts";
import { createTemplateFieldReader } from "#connectors/webhook/formats/template.ts";
import { alarmMessage, gatewayMessage } from "./sent-samples.ts";

const HEADING = "Values until 2026-11-02 07:15:04 +01:00";
const seriesLine = (n: number, name = `VS1-GT${n}`) => `${name} ▇▆▅▄\u00a0\u00a0▁▁ 18.2–21.4 °C, last 18.2, 3 h`;
const twentyLines = (name?: string) => [HEADING, ...Array.from({ length: 20 }, (_, n) => seriesLine(n, name))];

const withSeries = (incident: IncidentMessage, timeSeriesLines: readonly string[]): IncidentMessage => ({
  ...incident,
  text: { ...incident.text, timeSeriesLines },
});
const withDescription = (length: number): IncidentMessage => {
  const { text, ...incident } = alarmMessage();
  const description = { label: "Description", text: "x".repeat(length) };
  return { ...incident, text: { ...text, fields: [...text.fields, description] } };
};

const formatWith = (name: FormatName) => (incident: IncidentMessage) => {
  const url = new URL(name === "ntfy" ? "https://ntfy.example.com/heating" : "https://example.com/in");
  const at = { url, key: "key", name: "pager", reference: null, nowMs: 0 };
  return JSON.stringify(ALARM_FORMATS[name].format.buildRequest(incident, "open", at)?.json);
};
const asText = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body));

test("withFewerTimeSeries drops time series from the end, and the heading with the last series", () => {
  const texts = listTextsWithFewerTimeSeries({ timeSeriesLines: [HEADING, "a", "b"] });
  expect(texts.map(({ timeSeriesLines }) => timeSeriesLines)).toEqual([[HEADING, "a", "b"], [HEADING, "a"], []]);
  expect(listTextsWithFewerTimeSeries({ timeSeriesLines: [] })).toEqual([{ timeSeriesLines: [] }]);
});

const FIELDS = Array.from({ length: 7 }, () => ({ label: "Description", text: "x".repeat(3_990) }));
const longFields = { ...alarmMessage(), text: { ...alarmMessage().text, fields: FIELDS } };
const storm = gatewayMessage(30, { key: computeIncidentKey("main", "gateway", "8") });
const longList = { ...storm, text: { ...storm.text, list: Array<string>(21).fill("x".repeat(150)) } };

test.each<[string, number, IncidentMessage, (incident: IncidentMessage) => string]>([
  ["jira cloud", 32_000, longFields, (incident) => asText(renderIssue(incident, ADF_FORMAT))],
  ["jira data center", 32_000, longFields, (incident) => asText(renderIssue(incident, WIKI_FORMAT))],
  ["servicenow", 4_000, withDescription(2_500), renderRecord],
  ["discord", 6_000, longList, formatWith("discord")],
  ["teams", 20_000, longList, formatWith("teams")],
  ["googlechat", 32_000, longList, formatWith("googlechat")],
  ["mattermost", 16_383, longList, formatWith("mattermost")],
])("%s drops time series and no other text from a message of more than %i characters", (_, limit, incident, textOf) => {
  const all = [HEADING, ...Array<string>(Math.ceil(limit / 40)).fill(seriesLine(1))];
  const text = textOf(withSeries(incident, all));
  const countParts = (each: string) => each.split("x".repeat(150)).length;
  expect(countParts(text)).toBe(countParts(textOf(incident)));
  const listedCount = text.split("VS1-GT1 ").length - 1;
  expect(listedCount).toBeGreaterThan(0);
  expect(listedCount).toBeLessThan(all.length - 1);
});

test.each(FORMAT_NAMES)("a message in the format %s has the time series after the fields", (name) => {
  const text = formatWith(name)(withSeries(alarmMessage(), [HEADING, seriesLine(1)]));
  expect(text).toContain("▇▆▅▄\u00a0\u00a0▁▁ 18.2–21.4 °C, last 18.2, 3 h");
  expect(text.indexOf("Values until 2026-11-02 07:15:04")).toBeGreaterThan(text.indexOf("Priority"));
});

describe("time series in a Slack message", () => {
  const sections = (incident: IncidentMessage, sizes = FULL_TEXT_LENGTHS) =>
    buildMessage(incident, sizes).blocks.flatMap((block) =>
      "text" in block && block.text.text.includes("▁") ? [block.text] : [],
    );

  test("are a section of plain text before the link", () => {
    const incident = withSeries(alarmMessage(), twentyLines());
    expect(sections(incident)).toEqual([{ type: "plain_text", text: twentyLines().join("\n"), emoji: false }]);
    const blockTypes = buildMessage(incident, FULL_TEXT_LENGTHS).blocks.map(({ type }) => type);
    expect(blockTypes).toEqual(["header", "section", "section", "context"]);
  });

  test("have complete lines of at most 3,000 escaped characters, and are omitted from a shortened message", () => {
    const incident = withSeries(alarmMessage(), twentyLines("<".repeat(60)));
    const text = sections(incident)[0]?.text ?? "";
    expect(text.length).toBeLessThanOrEqual(3_000);
    const lines = text.split("\n");
    expect(lines.length).toBeGreaterThan(8);
    expect(lines.slice(1).every((each) => each.startsWith("&lt;") && each.endsWith(", 3 h"))).toBe(true);
    expect(sections(incident, SHORT_TEXT_LENGTHS)).toEqual([]);
  });
});

describe("time series in a fixed-width block", () => {
  test("have no markup in email", () => {
    const config = { from: "plenum@example.com", to: ["a@example.com"], cc: [], subject_prefix: "" };
    const incident = withSeries(alarmMessage(), [HEADING, seriesLine(1, "<b>VS1</b>")]);
    const mail = buildIncidentMail(incident, "title", config, 0);
    expect(mail.text).toContain(`\n\n${HEADING}\n${seriesLine(1, "<b>VS1</b>")}\n\n`);
    expect(mail.html).toContain(`<pre>${HEADING}\n${seriesLine(1, "&lt;b&gt;VS1&lt;/b&gt;")}</pre>`);
    expect(buildIncidentMail(alarmMessage(), "title", config, 0).html).not.toContain("<pre>");
  });

  test("have no markup in jira", () => {
    const name = "{noformat}[~ola]";
    const { content } = renderIssue(withSeries(alarmMessage(), [HEADING, seriesLine(1, name)]), ADF_FORMAT) as {
      content: readonly unknown[];
    };
    const code = { type: "codeBlock", content: [{ type: "text", text: `${HEADING}\n${seriesLine(1, name)}` }] };
    expect(content.at(-2)).toEqual(code);
    const text = String(renderIssue(withSeries(alarmMessage(), [HEADING, seriesLine(1, name)]), WIKI_FORMAT));
    expect(text).toContain(`{noformat}\n${HEADING}\n${seriesLine(1, "{ noformat}[ ~ola]")}\n{noformat}\n`);
    expect(text.split("{noformat}")).toHaveLength(3);
  });

  test("have no markup in servicenow", () => {
    const text = renderRecord(withSeries(alarmMessage(), [HEADING, seriesLine(1, "[code]<b>[/code]")]));
    expect(text).toContain(`\n\n${HEADING}\n${seriesLine(1, "[ code]<b>[ /code]")}\n\nOpen in Plenum: https://`);
    const long = withDescription(9_000);
    expect(renderRecord(withSeries(long, twentyLines()))).toBe(renderRecord(long));
  });
});

test("time series are details in pagerduty, a field of templates, and cut from a long text in ntfy", () => {
  const incident = withSeries(alarmMessage(), [HEADING, seriesLine(1)]);
  expect(JSON.parse(formatWith("pagerduty")(incident)).payload.custom_details.values).toEqual([HEADING, seriesLine(1)]);
  expect(JSON.parse(formatWith("pagerduty")(alarmMessage())).payload.custom_details).not.toHaveProperty("values");
  const field = createTemplateFieldReader(incident, null);
  expect(field("curves")).toEqual([HEADING, seriesLine(1)]);
  expect(field("text")).toMatch(/\nValues until .*\nVS1-GT1 ▇.*, 3 h$/);
  const { message } = JSON.parse(formatWith("ntfy")(withSeries(alarmMessage(), twentyLines("å".repeat(60))))) as {
    message: string;
  };
  expect(Buffer.byteLength(message)).toBeLessThanOrEqual(3_000);
  expect(message).toMatch(/Priority: A.*…$/s);
});
