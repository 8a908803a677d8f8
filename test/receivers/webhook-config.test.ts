import { describe, expect, test } from "vitest";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { type ALARM_FORMATS, FORMAT_NAMES, getFormatRequirements } from "#connectors/webhook/formats/by-name.ts";

const SECRET = { env: "HOOK" };
const PLAIN = "https://receiver.example.com/in";

function complaints(config: object): readonly string[] {
  const { error } = WebhookConfig.safeParse(config);
  return (error?.issues ?? []).map(({ path, message }) => `${path.join(".")}: ${message}`);
}

function least(format: keyof typeof ALARM_FORMATS): object {
  const { address, key, ...rest } = getFormatRequirements(format);
  return {
    format,
    ...(rest.url === undefined ? { url: address === "secret" ? SECRET : PLAIN } : {}),
    ...(key === "needed" ? { key: SECRET } : {}),
  };
}

describe.each(FORMAT_NAMES)("the webhook format %s", (format) => {
  const { address, key, ...rest } = getFormatRequirements(format);

  test("accepts the smallest configuration and a secret address", () => {
    expect(complaints(least(format))).toEqual([]);
    expect(complaints({ ...least(format), url: SECRET })).toEqual([]);
  });

  test("rejects a plain address if the address is the secret", () => {
    const message = `url: Whoever has this address can post to ${format}, so it must not stand here: write {file: path} or {env: NAME}.`;
    expect(complaints({ ...least(format), url: PLAIN })).toEqual(address === "secret" ? [message] : []);
  });

  test("rejects a configuration without a required address or key", () => {
    const { url: _, ...without } = least(format) as { url?: unknown };
    expect(complaints(without)).toHaveLength(rest.url === undefined ? 1 : 0);
    const { key: __, ...keyless } = least(format) as { key?: unknown };
    const message = `key: The format ${format} needs the key of the integration: {file: path} or {env: NAME}.`;
    expect(complaints(keyless)).toEqual(key === "needed" ? [message] : []);
  });

  test("rejects each option of another format with one error", () => {
    const others = { secrets: [SECRET], unsigned: true, template: { open: {} } };
    const options = complaints({ ...least(format), ...others }).map((each) => each.split(":")[0]);
    expect(options).toEqual(["secrets", "unsigned", "template"]);
    expect(complaints({ ...least(format), key: SECRET })).toHaveLength(key === undefined ? 1 : 0);
  });

  test("accepts the options of receivers", () => {
    const options = { hold: "2m", initial: true, language: "no", words: { resolved: "Over" }, fold: {} };
    expect(complaints({ ...least(format), ...options })).toEqual([]);
  });
});

describe.each(["cloudevents", "standard"])("the event format %s", (format) => {
  const events = { format, url: PLAIN, unsigned: true };

  test("accepts a plain address and rejects a missing or secret one", () => {
    expect(complaints(events)).toEqual([]);
    expect(complaints({ format, unsigned: true })).toEqual([
      "url: This is needed and missing: where every event is posted to.",
    ]);
    expect(complaints({ ...events, url: SECRET })[0]).toMatch(/^url: With the format .* write the address itself/);
  });

  test("rejects options for alarms", () => {
    for (const [name, value] of Object.entries({ hold: "2m", language: "no", fold: { gateway: false } })) {
      expect(complaints({ ...events, [name]: value })).toEqual([
        `${name}: This is for alarms; the format ${format} sends every event as it comes. Take it away.`,
      ]);
    }
    expect(complaints({ ...events, key: SECRET, template: { open: {} } })).toEqual([
      `key: The format ${format} has no use for this; take it away.`,
      `template: The format ${format} has no use for this; take it away.`,
    ]);
  });
});

test("the format is cloudevents by default, and a misspelled format is rejected", () => {
  expect(WebhookConfig.parse({ url: PLAIN, unsigned: true }).format).toBe("cloudevents");
  expect(complaints({ url: PLAIN, format: "pagerdutty" })).toHaveLength(1);
});
