import { describe, expect, test } from "vitest";
import { Config, settingsAffectingTagWrites } from "#src/app/config/config.ts";
import { textToSign } from "#src/engine/commands/approval/check-approval.ts";

const plainConfig = {
  sources: { main: { base_url: "https://a.example", token: { env: "T" }, time_zone: "Europe/Oslo" } },
  sinks: {
    broker: { mqtt: { url: "mqtts://b.example", commands: { enabled: true } } },
    screen: { mqtt: { url: "mqtts://c.example" } },
    lake: { stdout: {} },
  },
};
const signedText = (config: unknown) => textToSign(settingsAffectingTagWrites(Config.parse(config)), "");

describe("writingSettings (the options that an approval covers)", () => {
  const { main } = plainConfig.sources;
  const { broker, screen } = plainConfig.sinks;
  const withSource = (more: object) => ({ ...plainConfig, sources: { main: { ...main, ...more } } });
  const withSinks = (more: object) => ({ ...plainConfig, sinks: { ...plainConfig.sinks, ...more } });
  test.each([
    ["another service", withSource({ base_url: "https://x.example" })],
    ["another time zone", withSource({ time_zone: "Europe/Rome" })],
    ["another certificate authority", withSource({ ca_file: "ca.pem" })],
    ["a proxy", withSource({ proxy: { url: "http://p.example:3128" } })],
    ["another broker", withSinks({ broker: { mqtt: { ...broker.mqtt, url: "mqtts://x" } } })],
    ["another sink for commands", withSinks({ screen: { mqtt: { ...screen.mqtt, commands: { enabled: true } } } })],
  ])("gives another text to sign for a configuration with %s", (_what, changed) => {
    expect(signedText(changed)).not.toBe(signedText(plainConfig));
  });

  test("gives the same text to sign when only options for reading or for sending events change", () => {
    const changedConfig = {
      ...plainConfig,
      sinks: { broker: { ...broker, batch: 5 }, other: { stdout: {} } },
      log: { level: "warn" },
    };
    expect(signedText(changedConfig)).toBe(signedText(plainConfig));
  });
});
