import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import type { Member } from "#src/scale/member.ts";
import { type Observer, observe } from "../connectors/mqtt/observer.ts";
import { absent } from "../real-servers.ts";
import { type Service, type Stage, setStage, spending } from "./stage.ts";

let stage: Stage;
let observer: Observer;

afterEach(() => stage.close());

async function begin(options: Parameters<typeof setStage>[0]): Promise<void> {
  stage = await setStage(options);
  observer = await observe(stage.broker.url);
  onTestFinished(() => observer.leave());
}

const holding = (member: Member, ...sources: readonly string[]) =>
  expect.poll(() => member.held(), { timeout: 60_000, interval: 50 }).toEqual(sources.toSorted());

const holdingSome = (member: Member, count: number) =>
  expect.poll(() => member.held().length, { timeout: 60_000, interval: 50 }).toBe(count);

/** Resolves when a member has requested something of the service after that time. */
async function askedSince({ simulator }: Service, sinceMs: number): Promise<void> {
  const next = () => simulator.truth.requests().find(({ atMs }) => atMs > sinceMs)?.atMs;
  await expect.poll(next, { timeout: 60_000, interval: 50 }).toBeDefined();
}

/** Ids of the events of a kind, each once, by alarm. */
function told(kind: string): readonly string[] {
  const events = observer.heard.filter(({ topic }) => topic.endsWith(`/event/${kind}`));
  return [...new Set(events.map(({ json }) => String(json.id)))];
}

/** Shown when a command is not where it should be: what became of it, and who listens. */
const saidOfCommands = () => ({
  results: observer.heard.filter(({ topic }) => topic.endsWith("/event/command-result")).map(({ json }) => json),
  listening: observer.heard.filter(({ topic }) => topic.endsWith("/commands")).map(({ json }) => json),
});

const statusOf = (source: string) =>
  observer.heard.filter(({ topic }) => topic === `plenum/status/source/${source}`).at(-1)?.json.status;

const SOURCES = ["east", "north", "south", "west"];

describe.skipIf(absent("postgres") || absent("mosquitto"))("two members of a fleet", () => {
  test("divide the sources between them, and hand them over at a stop", async () => {
    await begin({ sources: SOURCES });
    const [a, b] = [await stage.member("a"), await stage.member("b")];
    await a.start();
    await holding(a, ...SOURCES);
    await b.start();
    await Promise.all([holdingSome(a, 2), holdingSome(b, 2)]);
    const alarms = [...stage.services.values()].map(({ simulator: { control }, siteId }) => ({
      control,
      id: control.raiseAlarm({ siteId }),
    }));
    await expect.poll(() => told("alarm-raised").length, { timeout: 60_000 }).toBe(SOURCES.length);

    const handed = a.held();
    await a.stop(8_000);
    await holding(b, ...SOURCES);
    for (const source of handed) {
      const service = stage.services.get(source);
      if (service === undefined) throw new Error(source);
      await askedSince(service, Date.now());
    }
    await expect.poll(() => SOURCES.map(statusOf), { timeout: 30_000 }).toEqual(SOURCES.map(() => "online"));
    const fleet = await b.fleet();
    expect(
      fleet.takeovers
        .filter(({ from, to }) => from === "a" && to === "b")
        .map(({ source }) => source)
        .toSorted(),
    ).toEqual(expect.arrayContaining([...handed]));

    expect(told("alarm-resolved")).toEqual([]);
    for (const { control, id } of alarms) control.resolveAlarm(id);
    await expect.poll(() => told("alarm-resolved").length, { timeout: 60_000 }).toBe(SOURCES.length);
    expect(told("alarm-raised")).toHaveLength(SOURCES.length);
    for (const service of stage.services.values()) {
      expect(spending(service).most).toBeLessThanOrEqual(20);
      expect(spending(service).refused).toBe(0);
    }
  }, 240_000);

  test("recover from a kill: the other member polls, completes the open write, and emits no false event", async () => {
    await begin({ sources: SOURCES.slice(0, 2), isWritable: true });
    const killed = await stage.process("killed");
    const other = await stage.member("other");
    await other.start();
    await holdingSome(other, 1);
    const [source = ""] = SOURCES.slice(0, 2).filter((each) => !other.held().includes(each));
    const service = stage.services.get(source);
    if (service === undefined) throw new Error("Both hold nothing.");
    const { simulator, siteId, tags } = service;
    simulator.control.raiseAlarm({ siteId });
    await expect.poll(() => told("alarm-raised").length, { timeout: 60_000 }).toBe(1);

    // The device takes it, and nobody hears so.
    const tag = tags.at(-1) ?? "";
    simulator.control.setFaults([
      { match: { endpoints: ["write"] }, when: { count: 1 }, fault: { kind: "slow", delay_ms: 20_000 } },
    ]);
    await expect
      .poll(
        () =>
          observer.heard.some(
            ({ topic, json }) =>
              topic.startsWith(`plenum/status/source/${source}/commands`) && json.status === "online",
          ),
        { timeout: 60_000 },
      )
      .toBe(true);
    const value = 33;
    await observer.publish(`plenum/cmd/${source}/${tag}/set`, JSON.stringify({ id: "c1", value, ttl_s: 60 }), {
      qos: 1,
    });
    const isAsked = () =>
      simulator.truth.requests().some(({ endpoint }) => endpoint === "write") || simulator.truth.writes().length > 0;
    await expect
      .poll(() => ({ isAsked: isAsked(), ...saidOfCommands() }), { timeout: 60_000, interval: 20 })
      .toMatchObject({ isAsked: true });
    await killed.end("SIGKILL");
    await askedSince(service, Date.now());
    await holding(other, ...SOURCES.slice(0, 2));

    await expect.poll(() => told("command-result").length, { timeout: 90_000 }).toBe(1);
    const result = observer.heard.find(({ topic }) => topic.endsWith("/event/command-result"))?.json;
    expect(result?.data).toMatchObject({
      commandId: "c1",
      outcome: expect.stringMatching(/^(confirmed|unknown|mismatch)$/),
    });
    await expect.poll(() => statusOf(source), { timeout: 30_000 }).toBe("online");
    expect(simulator.truth.requests().filter(({ endpoint }) => endpoint === "write").length).toBeLessThanOrEqual(1);
    expect(simulator.truth.writes().length).toBeLessThanOrEqual(1);
    expect(told("alarm-raised")).toHaveLength(1);
    expect(told("alarm-resolved")).toEqual([]);
    expect(spending(service).most).toBeLessThanOrEqual(20);
    expect(spending(service).refused).toBe(0);
  }, 240_000);

  test("stop all tag writes within 2 s after one member activated the kill switch", async () => {
    await begin({ sources: SOURCES.slice(0, 2), isWritable: true });
    const [a, b] = [await stage.member("a"), await stage.member("b")];
    await a.start();
    await b.start();
    await Promise.all([holdingSome(a, 1), holdingSome(b, 1)]);
    const stopped = async (member: Member) =>
      ((await (await fetch(`${member.statusUrl()}/api/status`)).json()) as { commands: { stopped: boolean } }).commands
        .stopped;
    expect([await stopped(a), await stopped(b)]).toEqual([false, false]);
    const url = a.statusUrl();
    const answer = await fetch(`${url}/api/writes/stop`, {
      method: "POST",
      headers: { "x-plenum": "status-page" },
    });
    expect(answer.status).toBe(200);
    await expect.poll(() => stopped(b), { interval: 50 }).toBe(true);
    expect(await stopped(a)).toBe(true);
  }, 120_000);
});
