import { join } from "node:path";
import { expect, test } from "vitest";
import type { FleetMember } from "#src/scale/fleet-member.ts";
import { sendLockChange } from "#src/ui/operator/control-socket-client.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { createFleet, describeWithServers, expectQuotaMet, holds, type Service } from "./fleet-harness.ts";

const SOURCES = ["east", "north", "south", "west"];
const TWO_SOURCES = SOURCES.slice(0, 2);

async function requestedSince({ simulator }: Service, sinceMs: number): Promise<void> {
  const next = () => simulator.truth.requests().find(({ atMs }) => atMs > sinceMs)?.atMs;
  await expect.poll(next).toBeDefined();
}

async function begin(options: Parameters<typeof createFleet>[0]) {
  const harness = await createFleet(options);
  const observer = await harness.observe();
  const statusOf = (source: string) =>
    observer.heard.filter(({ topic }) => topic === `plenum/status/source/${source}`).at(-1)?.json.status;
  const eventCount = (kind: string) => expect.poll(() => observer.idsOf(kind).length);
  return { harness, observer, statusOf, eventCount };
}

describeWithServers("two members of a fleet", () => {
  test("two members of a fleet divide the sources between them, and hand them over at a stop", async () => {
    const { harness, observer, statusOf, eventCount } = await begin({ sources: SOURCES });
    const [a, b] = (await harness.started("a", "b")) as [FleetMember, FleetMember];
    const alarms = [...harness.services.values()].map(({ simulator: { control }, siteId }) => ({
      ...{ control, id: control.raiseAlarm({ siteId }) },
    }));
    await eventCount("alarm-raised").toBe(SOURCES.length);

    const handedOver = a.held();
    await a.stop(8_000);
    await holds(b, SOURCES);
    for (const source of handedOver) await requestedSince(harness.service(source), Date.now());
    await expect.poll(() => SOURCES.map(statusOf)).toEqual(SOURCES.map(() => "online"));
    const { takeovers } = await b.fleet();
    const taken = takeovers.filter(({ from, to }) => from === "a" && to === "b").map(({ source }) => source);
    expect(taken).toEqual(expect.arrayContaining([...handedOver]));

    expect(observer.idsOf("alarm-resolved")).toEqual([]);
    for (const { control, id } of alarms) control.resolveAlarm(id);
    await eventCount("alarm-resolved").toBe(SOURCES.length);
    expect(observer.idsOf("alarm-raised")).toHaveLength(SOURCES.length);
    expectQuotaMet(harness);
  });

  test("two members recover from a kill: the other member polls, completes the pending write, and emits no false event", async () => {
    const { harness, observer, statusOf, eventCount } = await begin({ sources: TWO_SOURCES, isWritable: true });
    const killed = await harness.process("killed");
    const other = await harness.member("other");
    await other.start();
    await expect.poll(() => other.held().length).toBe(1);
    const [source = ""] = TWO_SOURCES.filter((each) => !other.held().includes(each));
    const service = harness.service(source);
    const { simulator, siteId, tags } = service;
    simulator.control.raiseAlarm({ siteId });
    await eventCount("alarm-raised").toBe(1);

    // The device accepts the write, but its response arrives after the kill.
    simulator.control.setFaults([
      { match: { endpoints: ["write"] }, when: { count: 1 }, fault: { kind: "slow", delay_ms: 20_000 } },
    ]);
    const commandsTopic = `plenum/status/source/${source}/commands`;
    const isListening = () =>
      observer.heard.some(({ topic, json }) => topic.startsWith(commandsTopic) && json.status === "online");
    await expect.poll(isListening).toBe(true);
    const command = JSON.stringify({ id: "c1", value: 33, ttl_s: 60 });
    await observer.publish(`plenum/cmd/${source}/${tags.at(-1) ?? ""}/set`, command, { qos: 1 });
    const writeRequests = () => simulator.truth.requests().filter(({ endpoint }) => endpoint === "write").length;
    const results = () => observer.heard.filter(({ topic }) => topic.endsWith("/event/command-result"));
    await expect
      .poll(() => ({ isWriting: writeRequests() + simulator.truth.writes().length > 0, results: results() }))
      .toMatchObject({ isWriting: true });
    await killed.end("SIGKILL");
    await requestedSince(service, Date.now());
    await holds(other, TWO_SOURCES);

    await eventCount("command-result").toBe(1);
    const outcome = expect.stringMatching(/^(confirmed|unknown|mismatch)$/);
    expect(results()[0]?.json.data).toMatchObject({ commandId: "c1", outcome });
    await expect.poll(() => statusOf(source)).toBe("online");
    expect(writeRequests()).toBeLessThanOrEqual(1);
    expect(simulator.truth.writes().length).toBeLessThanOrEqual(1);
    expect(observer.idsOf("alarm-raised")).toHaveLength(1);
    expect(observer.idsOf("alarm-resolved")).toEqual([]);
    expectQuotaMet(harness);
  });

  test("a write lock that is set on one member of a fleet also applies on the member that takes the source over", async () => {
    const { harness, observer } = await begin({ sources: TWO_SOURCES, isWritable: true });
    const [a, b] = (await harness.started("a", "b")) as [FleetMember, FleetMember];
    const [source = ""] = a.held();
    const tag = harness.service(source).tags.at(-1) ?? "";
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const lock = { owner: "anna", reason: "The valve is exchanged.", until };
    const { signal } = new AbortController();
    const change = { target: { source, scope: "tag", id: tag }, lock, by: "root" } as const;
    await sendLockChange({ stateFolder: join(harness.folder, "a") }, change, signal);
    await a.stop(8_000);
    await holds(b, TWO_SOURCES);
    const { commands } = (await (await fetch(`${b.statusUrl()}/api/status`)).json()) as StatusReport;
    expect(commands?.locks).toEqual({ count: 1, nextEnd: until });
    const commandsTopic = `plenum/status/source/${source}/commands`;
    const lastState = () => observer.heard.filter(({ topic }) => topic === commandsTopic).at(-1)?.json.status;
    await expect.poll(lastState).toBe("online");
    await observer.publish(`plenum/cmd/${source}/${tag}/set`, JSON.stringify({ id: "c1", value: 33, ttl_s: 60 }), {
      qos: 1,
    });
    const results = () => observer.heard.filter(({ topic }) => topic.endsWith("/event/command-result"));
    await expect.poll(() => results()[0]?.json.data).toMatchObject({ outcome: "rejected", reason: "locked" });
  });

  test("two members of a fleet stop all tag writes after one member activated the kill switch", async () => {
    const harness = await createFleet({ sources: TWO_SOURCES, isWritable: true });
    const [a, b] = (await harness.started("a", "b")) as [FleetMember, FleetMember];
    const isStopped = async (member: FleetMember) => {
      const response = await fetch(`${member.statusUrl()}/api/status`);
      return ((await response.json()) as { commands: { stopped: boolean } }).commands.stopped;
    };
    expect([await isStopped(a), await isStopped(b)]).toEqual([false, false]);
    const headers = { "x-plenum": "status-page" };
    expect((await fetch(`${a.statusUrl()}/api/writes/stop`, { method: "POST", headers })).status).toBe(200);
    await expect.poll(() => isStopped(b)).toBe(true);
    expect(await isStopped(a)).toBe(true);
  });
});
