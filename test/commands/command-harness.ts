import { rmSync } from "node:fs";
import { pino } from "pino";
import type { z } from "zod";
import type { CommandMessage } from "#src/core/connector.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { CommandResult } from "#src/core/model/command-event-data.ts";
import type { Event } from "#src/core/model/event.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import type { Log } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { AUDIT_LOG, type AuditRecord, verifyAudit } from "#src/engine/commands/audit/audit-log.ts";
import { createWriteCommandService } from "#src/engine/commands/commands.ts";
import { CommandsConfig } from "#src/engine/commands/config.ts";
import { createKillSwitch } from "#src/engine/commands/kill-switch.ts";
import { armingDocument } from "#src/engine/commands/write-arming.ts";
import { createFolderWritingGuards } from "#src/engine/commands/writing-guards.ts";
import { createSource } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import { SERVICE_TOKEN, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import { createRunFolder } from "../run-folders.ts";
import { simulatedTransport } from "../simulated-transport.ts";
import { chooseTemporaryRoot } from "../temporary-root.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

export interface Written {
  readonly tag_id: string;
  readonly value: number | boolean;
}

export type ConfigInput = z.input<typeof CommandsConfig>;

export interface HarnessOptions {
  readonly simulator?: SimulatorOptionsInput;
  readonly config?: ConfigInput;
  readonly hasToken?: boolean;
  readonly isArmed?: boolean;
  readonly ownTime?: boolean;
  readonly place?: string;
  readonly isStarted?: boolean;
  readonly around?: (store: Store) => Store;
  readonly log?: Log;
  /** Called at each step of a command, e.g. `post before`, `accepted after`; may kill the worker. */
  readonly onStep?: (step: string) => void;
}

const WAY = { thereMs: () => 20, backMs: 20, deadlineMs: 60_000 };

export const START_MS = Date.parse("2026-11-20T12:00:00Z");
export const SITE = 12;
export const BOOLEAN_SITE = 3;

export function tagsOf(simulator: Simulator, count: number): readonly string[] {
  const found = [...simulator.world.tags.values()].filter(
    (tag) => tag.site.id === SITE && tag.kind === "analog" && !tag.isCumulative,
  );
  return found.slice(0, count).map((tag) => tag.id);
}

export function booleanTags(simulator: Simulator): readonly string[] {
  const found = [...simulator.world.tags.values()].filter(
    (tag) => tag.site.id === BOOLEAN_SITE && tag.kind === "boolean",
  );
  return found.map((tag) => tag.id);
}

export type Harness = Awaited<ReturnType<typeof createHarness>>;

/** Commands over the real store, client and quota with the simulated service, on a virtual clock. */
export async function createHarness(options: HarnessOptions = {}) {
  const virtual = createVirtualClock(START_MS);
  const clock: VirtualClock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const service = options.ownTime ? { ...clock, now: () => START_MS + Math.floor(clock.monotonic()) } : clock;
  const simulator = createSimulator(
    { sites: [SITE, BOOLEAN_SITE], epoch: START_MS, alarms: { recorded: false }, ...options.simulator },
    { now: () => service.now() },
  );
  const folder = createRunFolder(options.place ?? chooseTemporaryRoot());
  const log = options.log ?? pino({ level: process.env.PLENUM_TEST_LOG ?? "silent" });
  const posts: (readonly Written[])[] = [];
  const tags = tagsOf(simulator, 25);
  for (const id of tags) simulator.control.setTag(id, 20);
  let isBroken = false;
  let slow: { readonly step: string; readonly ms: number } | null = null;

  const handle = simulatedTransport(simulator, service, WAY);
  const opened = await openStore({ folder, clock });
  const store: Store = {
    ...opened,
    async commit(change) {
      if (isBroken) throw new Retryable("The disk is full.");
      if (slow !== null && auditStepOf(change) === slow.step) await clock.sleep(slow.ms);
      return opened.commit(change);
    },
  };
  await storeBuilding(store, simulator);
  if (options.isArmed !== false)
    await store.commit({ documents: [armingDocument({ at: "2026-11-01T00:00:00.000Z", by: "a test", damaged: 0 })] });
  // Without an older request the quota begins with a careful minute.
  const longAgo = START_MS - 600_000;
  await opened.quotaStore.save("main/read", { id: 1, sentAtMs: longAgo, countedByMs: longAgo });

  function start(input: ConfigInput = {}) {
    let isDead = false;
    const metrics = createMetrics();
    const transport: Transport = async (request, signal) => {
      if (isDead) return new Promise(() => undefined);
      if (request.method === "POST") {
        const { tags: writes } = JSON.parse(request.body ?? "{}") as { readonly tags: readonly Written[] };
        posts.push(writes);
      }
      return unlessKilled(request.method === "POST" ? "post" : "read", () => handle(request, signal));
    };
    async function unlessKilled<T>(name: string, work: () => Promise<T>): Promise<T> {
      options.onStep?.(`${name} before`);
      const result = isDead ? null : await work();
      options.onStep?.(`${name} after`);
      return isDead || result === null ? new Promise(() => undefined) : result;
    }
    const brokenIfKilled: Store = {
      ...store,
      commit: (change) => unlessKilled(auditStepOf(change) ?? "commit", () => store.commit(change)),
    };
    const quota = createQuota({ source: "main", clock, store: store.quotaStore });
    const clockCheck = createClockCheck({ clock, log });
    const source = createSource({
      name: "main",
      clockCheck,
      config: SourceConfig.parse({
        base_url: "http://localhost",
        token: { env: "TOKEN" },
        time_zone: "Europe/Oslo",
      }),
      limiter: quota,
      clock,
      metrics,
      log,
      transport,
      environment: options.hasToken === false ? {} : { TOKEN: SERVICE_TOKEN },
      random: () => 0.5,
    });
    const config = CommandsConfig.parse({
      enabled: true,
      allow: [
        ...tags.map((tag_id) => ({ site_id: SITE, tag_id, type: "number", min: 15, max: 25 })),
        ...booleanTags(simulator).map((tag_id) => ({ site_id: BOOLEAN_SITE, tag_id, type: "boolean" })),
      ],
      ...options.config,
      ...input,
    });
    const made = createWriteCommandService({
      config,
      sources: [{ source, timeZone: "Europe/Oslo" }],
      store: options.around?.(brokenIfKilled) ?? brokenIfKilled,
      guards: createFolderWritingGuards(folder),
      clock,
      clockCheck,
      log,
      metrics,
    });
    return {
      source,
      made,
      async kill() {
        isDead = true;
        const stopped = (await made).stop(0);
        void stopped.catch(() => undefined);
      },
    };
  }

  let run = start();
  let commands = await run.made;
  if (options.isStarted !== false) await commands.start(new AbortController().signal);
  const results = async (): Promise<readonly CommandResult[]> =>
    (await store.outbox.latest(1_000_000, ["command-result"]))
      .map(({ event }) => (event as Event<"command-result">).data)
      .toReversed();

  async function send(payload: unknown, changes: Partial<CommandMessage> = {}): Promise<void> {
    const text = typeof payload === "string" ? payload : JSON.stringify(payload);
    await commands.accept(arrivalOf(text, clock.now(), changes));
  }

  async function execute(payload: unknown, changes: Partial<CommandMessage> = {}, waitMs = 5_000): Promise<void> {
    await send(payload, changes);
    await clock.advance(waitMs);
  }

  return {
    clock,
    simulator,
    store,
    folder,
    killSwitch: createKillSwitch(folder),
    posts: posts as readonly (readonly Written[])[],
    get source() {
      return run.source;
    },
    get commands() {
      return commands;
    },
    send,
    execute,
    async compareClocks(): Promise<void> {
      for (let n = 0; n < 2; n += 1) {
        const request = run.source.me(new AbortController().signal);
        await clock.advance(100);
        await request;
      }
    },
    /** Lets the service answer one request with 503, so that every lane of the quota waits. */
    async pauseService(seconds: number): Promise<void> {
      simulator.control.setFaults([{ when: { count: 1 }, fault: { kind: "maintenance", retry_after: seconds } }]);
      const refused = run.source.read(tags.slice(0, 1), "on-demand", new AbortController().signal).catch(() => "503");
      await clock.advance(1_000);
      if ((await refused) !== "503") throw new Error("The service is not paused.");
    },
    async storeLiveValue(tag: string, value: number, ageMs = 0): Promise<void> {
      const time = new Date(clock.now() - ageMs).toISOString();
      const live = { value, quality: "good", time, lastGood: null, nulls: 0 };
      await store.commit({ documents: [{ set: documentSet("value", "main"), put: [[tag, live]] }] });
    },
    async storeGateways(online: boolean): Promise<void> {
      const set = documentSet("gateway", "main");
      const stored = await store.documents<{ readonly value: object }>(set);
      const put = [...stored].map(([id, each]) => [id, { ...each, value: { ...each.value, online } }] as const);
      await store.commit({ documents: [{ set, put }] });
    },
    results,
    /** All results in short, e.g. `a confirmed`, `b rejected too-soon`. */
    outcomes: async () => (await results()).map((result) => `${result.commandId} ${shortOutcome(result)}`),
    result: async (id: string) => (await results()).find((each) => each.commandId === id),
    /** Sends a command, waits and returns its result in short, e.g. `rejected too-soon`. */
    async outcomeOf(
      payload: { readonly id: string; readonly [key: string]: unknown },
      changes: Partial<CommandMessage> = {},
      waitMs = 5_000,
    ) {
      await execute(payload, changes, waitMs);
      const result = (await results()).findLast(({ commandId }) => commandId === payload.id);
      return result === undefined ? null : shortOutcome(result);
    },
    audit: async () => (await store.records<AuditRecord>(AUDIT_LOG, 0, 1_000_000)).map((record) => record.body),
    requests: (endpoint: string) => simulator.truth.requests().filter((each) => each.endpoint === endpoint).length,
    kill: () => run.kill(),
    /** Abandons the old process as a kill does and starts a new one on the same store. */
    async restart(input?: ConfigInput): Promise<void> {
      await run.kill();
      run = start(input);
      commands = await run.made;
      await commands.start(new AbortController().signal);
    },
    async stop(deadlineMs: number): Promise<void> {
      const stopped = commands.stop(deadlineMs);
      await clock.advance(deadlineMs);
      await stopped;
    },
    breakStore(broken: boolean): void {
      isBroken = broken;
    },
    slowDown(step: string, ms: number): void {
      slow = { step, ms };
    },
    async close(): Promise<void> {
      const verdict = await verifyAudit(store);
      await run.kill();
      await store.close();
      rmSync(folder, { recursive: true, force: true });
      if (verdict.brokenAt !== null) throw new Error(`The audit chain broke at ${verdict.brokenAt}.`);
    },
  };
}

export function auditStepOf({ records = [] }: Parameters<Store["commit"]>[0]): string | undefined {
  return (records[0]?.body as { readonly step: string } | undefined)?.step;
}

function shortOutcome({ outcome, reason }: CommandResult): string {
  return reason === null || reason === outcome ? outcome : `${outcome} ${reason}`;
}

export function arrivalOf(
  payload: string | Uint8Array,
  receivedAtMs: number,
  changes: Partial<CommandMessage> = {},
): CommandMessage {
  return {
    via: "broker",
    topic: "plenum/cmd/main/set",
    tagId: null,
    source: "main",
    payload: typeof payload === "string" ? new TextEncoder().encode(payload) : payload,
    retained: false,
    duplicate: false,
    expirySeconds: null,
    replyTo: null,
    correlation: null,
    properties: {},
    receivedAtMs,
    ...changes,
  };
}

export async function storeBuilding(store: Store, simulator: Simulator): Promise<void> {
  const stored = (value: unknown, siteId: number | null) => ({
    value,
    siteId,
    since: "2026-01-01T00:00:00.000Z",
    missingSince: null,
  });
  const tags = [...simulator.world.tags.values()].map(({ id, displayName, description, unit, site }) => [
    id,
    stored({ id, displayName, description, unit }, site.id),
  ]);
  const sites = new Map([...simulator.world.tags.values()].map((tag) => [tag.gatewayId, tag.site.id]));
  const gateways = [...sites].map(([id, site]) => [
    String(id),
    stored({ id: String(id), displayName: `Gateway ${id}`, online: true }, site),
  ]);
  const info = {
    user: { id: 1, name: "", email: "" },
    name: "",
    abilities: ["read:tags", "write:tags"],
    expiresAt: null,
    sites: [...new Set(sites.values())].map((id) => ({ id, displayName: "" })),
  };
  await store.commit({
    documents: [
      { set: documentSet("tag", "main"), put: tags as [string, unknown][] },
      { set: documentSet("gateway", "main"), put: gateways as [string, unknown][] },
      {
        set: documentSet("token", "main"),
        put: [["token", { info, checkedAt: "2026-01-01T00:00:00.000Z", warnedDays: null }]],
      },
    ],
  });
}
