import { spawnSync } from "node:child_process";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { findWorker, requestReport } from "#src/ui/operator/remote.ts";
import { observe } from "../connectors/mqtt/observer.ts";
import { absent, programPath } from "../real-servers.ts";
import { type Stage, setStage, spending } from "./stage.ts";

let stage: Stage;

afterEach(() => stage.close());

const isValueOf = (source: string) => (message: { readonly topic: string }) =>
  message.topic.startsWith(`plenum/${source}/`) && message.topic.endsWith("/value");

describe.skipIf(absent("postgres") || absent("mosquitto"))("one member of a fleet", () => {
  test("runs every source with separate sinks, and reports all sources together", async () => {
    stage = await setStage({ sources: ["north", "south"] });
    const observer = await observe(stage.broker.url);
    onTestFinished(() => observer.leave());
    const member = await stage.member("a");
    await member.start();
    for (const source of stage.services.keys()) {
      await observer.until(isValueOf(source), 60_000);
      await observer.until(
        ({ topic, json }) => topic === `plenum/status/source/${source}` && json.status === "online",
        30_000,
      );
    }
    expect(member.held()).toEqual(["north", "south"]);
    expect(observer.heard.filter(({ topic }) => topic === "plenum/status")).toEqual([]);

    const url = member.statusUrl();
    const report = await (await fetch(`${url}/api/status`)).json();
    expect(report).toMatchObject({
      sources: [{ name: "north" }, { name: "south" }],
      sinks: [{ sink: "broker", connector: "mqtt" }],
    });
    const fleet = await (await fetch(`${url}/api/fleet`)).json();
    expect(fleet).toMatchObject({ self: "a", members: [{ name: "a", state: "alive", sources: 2 }] });
    const tags = await (await fetch(`${url}/api/tags`)).json();
    expect(tags).toMatchObject({ total: 12 });
    const text = await (await fetch(`${url}/metrics`)).text();
    for (const source of stage.services.keys())
      expect(text).toContain(`plenum_outbox_depth{sink="broker",source="${source}"}`);
    if (!absent("promtool")) {
      const checked = spawnSync(programPath("promtool") ?? "", ["check", "metrics"], { input: text });
      expect(`${checked.stdout}${checked.stderr}`).toBe("");
    }

    const found = await findWorker(`${stage.folder}/a`, AbortSignal.timeout(10_000));
    if (found.kind !== "open") throw new Error(`The door is ${found.kind}.`);
    expect((await requestReport(found.door, AbortSignal.timeout(10_000))).sources).toHaveLength(2);
    await member.stop(8_000);
    expect(member.held()).toEqual([]);
    for (const service of stage.services.values()) expect(spending(service).refused).toBe(0);
  }, 180_000);
});
