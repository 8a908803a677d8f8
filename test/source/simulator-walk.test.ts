import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createHttpTransport, type HttpTransport } from "#src/engine/source/transport.ts";
import { DEFAULT_TOKEN } from "#src/simulator/options.ts";
import { type SimulatorServer, startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import { allItems, failureOf, never, type Trial, trialConfig, trialSource } from "./trial-source.ts";

describe("the client against the simulated service", () => {
  let simulator: Simulator;
  let server: SimulatorServer;
  let http: HttpTransport;
  let trial: Trial;

  beforeAll(async () => {
    simulator = createSimulator({}, { now: Date.now });
    server = await startSimulatorServer(simulator);
    const config = trialConfig(server.url, { page_size: { others: 20 } });
    http = createHttpTransport(config);
    trial = trialSource(http.send, { config, environment: { PLENUM_TOKEN: DEFAULT_TOKEN } });
  });
  afterAll(async () => {
    await http.close();
    await server.close();
  });

  it("parses the responses of all eleven endpoints", async () => {
    const { source } = trial;
    expect(await source.health(never())).toMatchObject({ status: "healthy", time: expect.stringMatching(/Z$/) });

    const me = await source.me(never());
    expect(me.abilities).toContain("read:tags");
    expect(me.expiresAt).toMatch(/Z$/);

    const sites = await allItems(source.sites({}, never()));
    expect(sites).toEqual(me.sites);
    expect(sites.length).toBeGreaterThan(0);

    const tags = [];
    for (const { id: siteId } of sites) {
      const ofSite = await allItems(source.tags({ siteId }, never()));
      expect(new Set(ofSite.map((tag) => tag.id)).size).toBe(ofSite.length);
      tags.push(...ofSite);
      await allItems(source.gateways({ siteId }, never()));
      await allItems(source.hosts({ siteId }, never()));
      await allItems(source.systems({ siteId }, never()));
    }
    expect(tags).toHaveLength(simulator.world.tags.size);

    const alarms = await allItems(source.alarms({ status: "all" }, never()));
    expect(alarms.length).toBeGreaterThan(0);
    for (const alarm of alarms) {
      expect(alarm).toMatchObject({
        status: expect.stringMatching(/^(active|resolved)$/),
        triggeredAt: expect.stringMatching(/Z$/),
        site: { id: expect.any(Number), displayName: expect.stringMatching(/./) },
      });
      expect(alarm.resolvedAt === null).toBe(alarm.status === "active");
    }

    const ids = tags.slice(0, 20).map((tag) => tag.id);
    const { readings } = await source.read(ids, "live", never());
    expect(readings.map((reading) => reading.id).sort()).toEqual(ids.toSorted());

    expect((await trial.metrics.unknownWords.get()).values).toEqual([]);
  });

  it("reads history, totals and the 404 of a tag without a log", async () => {
    const { source } = trial;
    const to = Math.floor(simulator.now() / 3_600_000) * 3_600_000;
    const times = { from: new Date(to - 86_400_000).toISOString(), to: new Date(to).toISOString() };
    const query = { ...times, resolution: "1h", timeZone: "Europe/Stockholm" } as const;
    const outcomes = new Set<string>();
    for (const [id] of [...simulator.world.tags].slice(0, 18)) {
      const logs = await source
        .history({ tagIds: [id], ...query }, "history", never())
        .catch((error: Error) => error.name);
      outcomes.add(typeof logs === "string" ? logs : "log");
      if (typeof logs === "string") continue;
      const range = { fromMs: to - 86_400_000, toMs: to, resolution: "1h", tz: "Europe/Stockholm" } as const;
      const truth = simulator.truth.history({ tagId: id, ...range });
      expect([...(logs[0]?.measurements ?? [])]).toHaveLength(truth.length);
      const [total] = await source.totals({ tagIds: [id], ...query }, "history", never());
      expect(total).toMatchObject({ id, total: expect.toSatisfy((value) => value === null || Number.isFinite(value)) });
      break;
    }
    expect([...outcomes]).toContain("log");
    for (const outcome of outcomes) expect(["log", "NoLog"]).toContain(outcome);
    expect(await failureOf(source.read(["no-such-tag"], "live", never()))).toMatchObject({
      kind: expect.stringMatching(/^(rejected|config)$/),
    });
  });

  it("reads a written value back", async () => {
    const { source } = trial;
    const tags = [...simulator.world.tags.keys()];
    const { readings } = await source.read(tags.slice(0, 20), "live", never());
    const number = readings.find((reading) => typeof reading.value === "number");
    const tagId = number?.id ?? "";
    const { written } = await source.write(async () => [{ tagId, value: 12.25 }], never());
    expect(written).toMatchObject([{ id: tagId, value: 12.25 }]);
    expect((await source.read([tagId], "on-demand", never())).readings).toMatchObject([{ value: 12.25 }]);
    expect(simulator.truth.writes()).toMatchObject([{ tagId, value: 12.25 }]);
  });
});
