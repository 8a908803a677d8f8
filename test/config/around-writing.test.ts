import { describe, expect, test } from "vitest";
import { aroundWriting, Config } from "#src/app/config/config.ts";
import { textOf } from "#src/engine/commands/approval/approval.ts";

const plain = {
  sources: { main: { base_url: "https://a.example", token: { env: "T" }, time_zone: "Europe/Oslo" } },
  sinks: {
    broker: { mqtt: { url: "mqtts://b.example", commands: { enabled: true } } },
    screen: { mqtt: { url: "mqtts://c.example" } },
    lake: { stdout: {} },
  },
};
const textFor = (config: unknown) => textOf(aroundWriting(Config.parse(config)), "");

describe("aroundWriting", () => {
  test.each([
    ["another service", { ...plain, sources: { main: { ...plain.sources.main, base_url: "https://x.example" } } }],
    ["another zone", { ...plain, sources: { main: { ...plain.sources.main, time_zone: "Europe/Rome" } } }],
    ["another authority", { ...plain, sources: { main: { ...plain.sources.main, ca_file: "ca.pem" } } }],
    [
      "a proxy on the way",
      { ...plain, sources: { main: { ...plain.sources.main, proxy: { url: "http://p.example:3128" } } } },
    ],
    [
      "another broker",
      {
        ...plain,
        sinks: { ...plain.sinks, broker: { mqtt: { ...plain.sinks.broker.mqtt, url: "mqtts://x" } } },
      },
    ],
    [
      "another place to listen at",
      {
        ...plain,
        sinks: {
          ...plain.sinks,
          screen: { mqtt: { ...plain.sinks.screen.mqtt, commands: { enabled: true } } },
        },
      },
    ],
  ])("%s is a change", (_what, changed) => {
    expect(textFor(changed)).not.toBe(textFor(plain));
  });

  test("excludes options that only read or send", () => {
    const { broker } = plain.sinks;
    const changed = {
      ...plain,
      sinks: { broker: { ...broker, batch: 5 }, other: { stdout: {} } },
      log: { level: "warn" },
    };
    expect(textFor(changed)).toBe(textFor(plain));
  });
});
