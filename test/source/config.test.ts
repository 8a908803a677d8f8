import { describe, expect, it } from "vitest";
import { SourceConfig } from "#src/engine/source/config.ts";

const LEAST = { base_url: "https://service.example", token: { file: "token" }, time_zone: "Europe/Stockholm" };

function complaint(change: object): string {
  const parsed = SourceConfig.safeParse({ ...LEAST, ...change });
  return parsed.success
    ? "fine"
    : parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`).join(" ");
}

describe("base_url", () => {
  it.each([
    "https://service.example",
    "https://service.example:8443/path/",
    "http://127.0.0.1:8080",
    "http://localhost:8080",
    "http://[::1]:8080",
    "http://sim.localhost",
  ])("accepts the address %s", (base_url) => {
    expect(complaint({ base_url })).toBe("fine");
  });

  it.each([
    ["https://service.example/", "https://service.example"],
    ["https://service.example/api/v1", "https://service.example"],
    ["https://service.example/api/v1/", "https://service.example"],
    ["https://service.example:8443/path/api/v1//", "https://service.example:8443/path"],
    ["https://service.example/api/v12", "https://service.example/api/v12"],
  ])("normalizes the address %s to %s", (base_url, address) => {
    expect(SourceConfig.parse({ ...LEAST, base_url }).base_url).toBe(address);
  });

  it.each([
    ["service.example/path", "Write the address with its scheme: https://service.example/path."],
    [
      "https://service.example/api/v1/sites",
      "Write the address of the service, without an endpoint: https://service.example.",
    ],
    ["http://service.example", "Use https://"],
    ["http://127.0.0.1.attacker.example", "Use https://"],
    ["http://localhost.attacker.example", "Use https://"],
    ["service.example", "Write the address"],
    ["ftp://service.example", "Write the address"],
    ["https://me:secret@service.example", "Take the user name and password out"],
    ["https://service.example?token=x", "The address must end with its path"],
    ["https://service.example/#x", "The address must end with its path"],
  ])("rejects the address %s with a reason", (base_url, sentence) => {
    expect(complaint({ base_url })).toContain(`base_url: ${sentence}`);
    expect(complaint({ base_url })).not.toContain("secret");
  });

  it("accepts plain HTTP to another machine with allow_plain_http", () => {
    expect(complaint({ base_url: "http://service.example", allow_plain_http: true })).toBe("fine");
  });
});

it.each([
  [{ quota: { requests_per_minute: 21 } }, "quota.requests_per_minute"],
  [{ page_size: { alarms: 501 } }, "page_size.alarms"],
  [{ time_zone: "Europe/Stokholm" }, "time_zone: `Europe/Stokholm` is not a time zone"],
  [{ time_zone: "europe/stockholm" }, "time_zone: Write the time zone as Europe/Stockholm."],
  [{ time_zone: "+01:00" }, "time_zone"],
  [{ token: { file: "a", env: "B" } }, "token"],
  [{ token: "17|abc" }, "token"],
  [{ base_ulr: "x" }, "base_ulr"],
])("rejects the source configuration %j with a reason", (change, sentence) => {
  expect(complaint(change)).toContain(sentence);
});
