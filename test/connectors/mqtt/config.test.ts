import { describe, expect, test } from "vitest";
import { buildClientId } from "#connectors/mqtt/client-options.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";

const findComplaint = (config: unknown) => MqttConfig.safeParse(config).error?.issues[0]?.message ?? "";

describe("the configuration of the MQTT sink", () => {
  test("requires only url", () => {
    expect(MqttConfig.parse({ url: "mqtts://broker.example" })).toMatchObject({
      protocol: "5",
      prefix: "plenum",
      retain: { values: true, alarms: true, inventory: true },
      publish_deadline: 10_000,
      commands: { enabled: false },
    });
  });

  test.each([
    ["broker.example", "mqtts://host"],
    ["http://broker.example", "mqtts://host"],
    ["mqtts://user:pw@broker.example", "user name and password out"],
    ["mqtts://broker.example/path", "ends with the host"],
    ["mqtts://broker.example?x=1", "ends with the host"],
  ])("refuses the broker address %s", (url, complaint) => {
    expect(findComplaint({ url })).toContain(complaint);
  });

  test.each([[{ username: "plenum", password: { env: "PW" } }], [{ commands: { enabled: true } }]])(
    "requires TLS, a local broker or plain_text for the configuration %o",
    (delicate) => {
      expect(findComplaint({ url: "mqtt://broker.example", ...delicate })).toContain("plain_text");
      for (const config of [
        { url: "mqtt://broker.example", plain_text: true },
        { url: "mqtts://broker.example" },
        { url: "mqtt://127.0.0.1:1883" },
        { url: "mqtt://[::1]" },
        { url: "mqtt://localhost" },
      ])
        expect(MqttConfig.safeParse({ ...config, ...delicate }).success, config.url).toBe(true);
    },
  );

  test.each([
    [{ tls: { ca_file: "x" }, url: "mqtt://127.0.0.1" }, "mqtts://"],
    [{ tls: { cert_file: "x" } }, "belong together"],
    [{ password: { env: "PW" } }, "needs a username"],
    [{ password: "secret" }, "{file: path}"],
    [{ prefix: "a/#" }, "prefix"],
    [{ topic: "{prefix}/{kind}" }, "{id}"],
    [{ keepalive: "10ms" }, "1s to 1h"],
    [{ retian: {} }, "nrecognized key"],
    [{ tls: { reject_unauthorized: false } }, "nrecognized key"],
  ])("refuses the configuration %o", (config, complaint) => {
    expect(findComplaint({ url: "mqtts://broker.example", ...config })).toContain(complaint);
  });
});

describe("the MQTT client id", () => {
  const config = MqttConfig.parse({ url: "mqtts://broker.example" });
  test("is stable, and differs between sinks, machines, prefixes and copied state folders", () => {
    const name = "scada";
    expect(buildClientId(config, { name }, "a")).toBe(buildClientId(config, { name }, "a"));
    const ids = [
      buildClientId(config, { name }, "a"),
      buildClientId(config, { name: "lake" }, "a"),
      buildClientId(config, { name }, "b"),
      buildClientId({ ...config, prefix: "trial" }, { name }, "a"),
      buildClientId(config, { name, identity: "0a1b2c3d" }, "a"),
    ];
    expect(new Set(ids).size).toBe(5);
    expect(ids[0]).toMatch(/^plenum-scada-[0-9a-f]{8}$/);
  });

  test("depends in a fleet on the source and not on the machine", () => {
    const share = { fleet: "0a1b2c3d", source: "north", now: Date.now };
    const id = buildClientId(config, { name: "scada", assignment: share }, "a");
    expect(id).toMatch(/^plenum-scada-north-[0-9a-f]{8}$/);
    expect(buildClientId(config, { name: "scada", assignment: share }, "b")).toBe(id);
    expect(buildClientId(config, { name: "scada", assignment: { ...share, source: "south" } }, "a")).not.toBe(id);
    expect(buildClientId(config, { name: "scada", assignment: { ...share, fleet: "ffffffff" } }, "a")).not.toBe(id);
    expect(buildClientId({ ...config, client_id: "plant" }, { name: "scada", assignment: share })).toBe("plant-north");
  });
});
