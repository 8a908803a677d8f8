import { describe, expect, test } from "vitest";
import {
  buildIncidentText,
  CustomMessagePhrases,
  chooseMessagePhrases,
  cutText,
  cutTextToBytes,
  formatDuration,
  toOneLine,
} from "#connectors/shared/receiver/message-texts.ts";
import type { Incident } from "#connectors/shared/receiver/receiver-interface.ts";
import type { Alarm } from "#src/core/model/building.ts";
import { alarmMessage } from "../receivers/sent-samples.ts";
import { ALARM } from "../sample-events.ts";

const withAlarm = (alarm: Partial<Alarm>) => alarmMessage({}, alarm);

const buildText = (language: "en" | "no", of: Incident, own = {}) =>
  buildIncidentText(of, chooseMessagePhrases(language, own), "Europe/Oslo");

describe("the text of an incident", () => {
  test("contains title, status, site, priority, local time, description and value", () => {
    expect(buildText("en", alarmMessage())).toMatchObject({
      title: "Supply temperature low, Kvarnholmen 4",
      status: "Active",
      fields: [
        { label: "Site", text: "Kvarnholmen 4" },
        { label: "Priority", text: "A" },
        { label: "Since", text: "2026-11-02 07:15:00 +01:00" },
        { label: "Description", text: ALARM.description },
        { label: "Value", text: "value: 18.4" },
      ],
    });
  });

  test("omits a description that repeats the alarm's title or the trigger's description", () => {
    const description = "Below 20 °C";
    const trigger = { ...ALARM.trigger, description };
    const labels = (of: Incident) =>
      buildText("en", of).fields.flatMap(({ label, text }) => (label === "Description" ? [text] : []));
    expect(labels(withAlarm({ trigger, description: `Supply temperature low: ${description}` }))).toHaveLength(1);
    expect(labels(withAlarm({ trigger, description: "Something else" }))).toEqual(["Something else", description]);
    expect(labels(withAlarm({ description: ALARM.trigger.displayName }))).toEqual([]);
  });

  test("shows the label of an enumerated value, else the number, and omits Value for an alarm without one", () => {
    const { lastActiveEvent } = ALARM;
    if (lastActiveEvent === null) throw new Error("The sample has no event.");
    const listValues = (more: object | null) =>
      buildText("en", withAlarm({ lastActiveEvent: more === null ? null : { ...lastActiveEvent, ...more } }))
        .fields.filter(({ label }) => label === "Value")
        .map(({ text }) => text);
    expect(listValues(null)).toEqual([]);
    expect(listValues({ value: null, textlistValue: null })).toEqual([]);
    expect(listValues({ value: 0, textlistValue: null })).toEqual(["value: 0"]);
    expect(listValues({ value: 1, textlistValue: "On" })).toEqual(["value: On"]);
  });

  test("contains the person who acknowledged the alarm, and the person's message if it is not empty", () => {
    const listFields = (acknowledgedMessage: string | null) =>
      buildText("en", withAlarm({ acknowledged: true, acknowledgedBy: "Kim", acknowledgedMessage })).fields.slice(5);
    const by = { label: "Acknowledged by", text: "Kim" };
    expect(listFields(null)).toEqual([by]);
    expect(listFields(" ")).toEqual([by]);
    expect(listFields("On my way")).toEqual([by, { label: "Message", text: "On my way" }]);
  });

  test("uses the configured language, and the configured phrases instead of the built-in phrases", () => {
    const endedIncident = alarmMessage({ status: "resolved", endedAt: "2026-11-02T08:27:30.000Z" });
    expect(buildText("no", endedIncident).fields).toContainEqual({ label: "Varighet", text: "2 h 12 min" });
    expect(buildText("en", endedIncident, { resolved: "Over" }).status).toBe("Over");
    expect(CustomMessagePhrases.safeParse({ storm: "{count} alarms" }).error?.issues[0]?.message).toBe(
      "There is no {count} in this text; it has {total}, {site}, {active}.",
    );
  });

  test("shows a time without a UTC offset unchanged and contains no duration", () => {
    const raw = alarmMessage({ status: "resolved", startedAt: "2026-11-02T07:15:00", endedAt: "2026-11-02T08:00:00Z" });
    const fields = buildText("en", raw).fields.map(({ label, text }) => [label, text]);
    expect(fields).toContainEqual(["Since", "2026-11-02T07:15:00"]);
    expect(fields.some(([label]) => label === "Lasted")).toBe(false);
  });
});

describe("text helpers", () => {
  const familyEmoji = "👨‍👩‍👧‍👦";

  test("cutText and cutTextToBytes shorten text between visible characters and end it with …", () => {
    expect(cutText("short", 5)).toBe("short");
    expect(cutText("too long", 5)).toBe("too …");
    expect(cutText(`ab${familyEmoji}cd`, 8)).toBe("ab…");
    expect(cutText(`e\u0301e\u0301e\u0301`, 5)).toBe("e\u0301e\u0301…");
    expect(Buffer.byteLength(cutTextToBytes("åæøåæø", 8))).toBeLessThanOrEqual(8);
    expect(cutTextToBytes("åæøåæø", 8)).toBe("åæ…");
    expect(cutText("abc", 0)).toBe("");
    expect(cutText("abc", 1)).toBe("…");
  });

  test("toOneLine replaces line breaks and control characters", () => {
    expect(toOneLine(" a\r\n b\u0000c\u2028d ")).toBe("a  b c d");
  });

  test.each([
    ["2026-11-02T00:00:00Z", "2026-11-02T00:00:00Z", "0 s"],
    ["2026-11-02T00:00:00Z", "2026-11-02T00:00:48Z", "48 s"],
    ["2026-11-02T00:00:00Z", "2026-11-02T03:12:40Z", "3 h 12 min"],
    ["2026-11-02T00:00:00Z", "2026-11-04T00:30:00Z", "2 d"],
    ["2026-11-02T03:00:00Z", "2026-11-02T00:00:00Z", ""],
  ])("formatDuration from %s to %s returns the text %s", (from, to, expected) => {
    expect(formatDuration(from, to)).toBe(expected);
  });
});
