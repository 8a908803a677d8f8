import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { findWorker, requestStatus } from "#src/ui/operator/control-socket-client.ts";
import { absent, programPath } from "../real-servers.ts";
import { createFleet, describeWithServers, expectQuotaMet } from "./fleet-harness.ts";

describeWithServers("one member of a fleet", () => {
  test("one member of a fleet runs every source with separate sinks, and reports all sources together", async () => {
    const sources = ["north", "south"];
    const harness = await createFleet({ sources });
    const observer = await harness.observe();
    const member = await harness.member("a");
    await member.start();
    for (const source of sources) {
      const isValue = ({ topic }: { readonly topic: string }) =>
        topic.startsWith(`plenum/${source}/`) && topic.endsWith("/value");
      await observer.until(isValue);
      await observer.until(({ topic, json }) => topic === `plenum/status/source/${source}` && json.status === "online");
    }
    expect(member.held()).toEqual(sources);
    expect(observer.heard.filter(({ topic }) => topic === "plenum/status")).toEqual([]);

    const get = (path: string) => fetch(`${member.statusUrl()}${path}`);
    expect(await (await get("/api/status")).json()).toMatchObject({
      sources: [{ name: "north" }, { name: "south" }],
      sinks: [{ sink: "broker", connector: "mqtt" }],
    });
    expect(await (await get("/api/fleet")).json()).toMatchObject({
      ...{ self: "a", members: [{ name: "a", state: "alive", sources: 2 }] },
    });
    expect(await (await get("/api/tags")).json()).toMatchObject({ total: 12 });
    const metrics = await (await get("/metrics")).text();
    for (const source of sources) expect(metrics).toContain(`plenum_outbox_depth{sink="broker",source="${source}"}`);
    if (!absent("promtool")) {
      const checked = spawnSync(programPath("promtool") ?? "", ["check", "metrics"], { input: metrics });
      expect(`${checked.stdout}${checked.stderr}`).toBe("");
    }

    const found = await findWorker(`${harness.folder}/a`, AbortSignal.timeout(60_000));
    if (found.kind !== "open") throw new Error(`The control socket is ${found.kind}.`);
    expect((await requestStatus(found.socket, AbortSignal.timeout(60_000))).sources).toHaveLength(2);
    await member.stop(8_000);
    expect(member.held()).toEqual([]);
    expectQuotaMet(harness);
  });
});
