import { describe, expect, test } from "vitest";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { type ALARM_FORMATS, FORMAT_NAMES, getFormatRequirements } from "#connectors/webhook/formats/format-by-name.ts";

const SECRET = { env: "HOOK" };
const PLAIN_ADDRESS = "https://receiver.example.com/in";

function listErrors(config: object): readonly string[] {
  const { error } = WebhookConfig.safeParse(config);
  return (error?.issues ?? []).map(({ path, message }) => `${path.join(".")}: ${message}`);
}

function smallestConfig(format: keyof typeof ALARM_FORMATS): object {
  const { addressKind, key, ...rest } = getFormatRequirements(format);
  return {
    format,
    ...(rest.url === undefined ? { url: addressKind === "secret" ? SECRET : PLAIN_ADDRESS } : {}),
    ...(key === "needed" ? { key: SECRET } : {}),
  };
}

describe.each(FORMAT_NAMES)("the webhook format %s", (format) => {
  const { addressKind, key, ...rest } = getFormatRequirements(format);

  test("accepts a configuration with only the required options, and an address from a secret", () => {
    expect(listErrors(smallestConfig(format))).toEqual([]);
    expect(listErrors({ ...smallestConfig(format), url: SECRET })).toEqual([]);
  });

  test("rejects an address in plain text if everyone who knows the address can post", () => {
    const message = `url: Everyone who knows this address can post to ${format}, so keep it out of the configuration: write {file: path} or {env: NAME}.`;
    const errors = listErrors({ ...smallestConfig(format), url: PLAIN_ADDRESS });
    expect(errors).toEqual(addressKind === "secret" ? [message] : []);
  });

  test("rejects a configuration without a required address or key", () => {
    const { url: _, ...without } = smallestConfig(format) as { url?: unknown };
    expect(listErrors(without)).toHaveLength(rest.url === undefined ? 1 : 0);
    const { key: __, ...keyless } = smallestConfig(format) as { key?: unknown };
    const message = `key: The format ${format} needs the key of the integration: {file: path} or {env: NAME}.`;
    expect(listErrors(keyless)).toEqual(key === "needed" ? [message] : []);
  });

  test("rejects each option of another format with one error", () => {
    const foreignOptions = { secrets: [SECRET], unsigned: true, template: { open: {} } };
    const options = listErrors({ ...smallestConfig(format), ...foreignOptions }).map((each) => each.split(":")[0]);
    expect(options).toEqual(["secrets", "unsigned", "template"]);
    expect(listErrors({ ...smallestConfig(format), key: SECRET })).toHaveLength(key === undefined ? 1 : 0);
  });

  test("accepts the options that all alarm receivers have, such as hold and language", () => {
    const options = { hold: "2m", initial: true, language: "no", words: { resolved: "Over" }, fold: {} };
    expect(listErrors({ ...smallestConfig(format), ...options })).toEqual([]);
  });
});

describe.each(["cloudevents", "standard"])("the event format %s", (format) => {
  const events = { format, url: PLAIN_ADDRESS, unsigned: true };

  test("accepts an address in plain text, and rejects a missing address and an address from a secret file", () => {
    expect(listErrors(events)).toEqual([]);
    expect(listErrors({ format, unsigned: true })).toEqual([
      "url: This is needed and missing: where every event is posted to.",
    ]);
    expect(listErrors({ ...events, url: SECRET })[0]).toMatch(/^url: With the format .* write the address itself/);
  });

  test("rejects options that apply only to alarm receivers, such as hold and language", () => {
    for (const [name, value] of Object.entries({ hold: "2m", language: "no", fold: { gateway: false } })) {
      expect(listErrors({ ...events, [name]: value })).toEqual([
        `${name}: This is for alarms; the format ${format} sends every event as it comes. Take it away.`,
      ]);
    }
    expect(listErrors({ ...events, key: SECRET, template: { open: {} } })).toEqual([
      `key: The format ${format} has no use for this; take it away.`,
      `template: The format ${format} has no use for this; take it away.`,
    ]);
  });
});

test("the format is cloudevents by default, and a misspelled format is rejected", () => {
  expect(WebhookConfig.parse({ url: PLAIN_ADDRESS, unsigned: true }).format).toBe("cloudevents");
  expect(listErrors({ url: PLAIN_ADDRESS, format: "pagerdutty" })).toHaveLength(1);
});
