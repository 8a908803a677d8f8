import { rmSync } from "node:fs";
import { pino } from "pino";
import type { z } from "zod";
import type { Arrival } from "#src/core/connector.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { CommandResult } from "#src/core/model/command-facts.ts";
import type { Event } from "#src/core/model/event.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import type { Log } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { armedAs } from "#src/engine/commands/arming.ts";
import { AUDIT_LOG, type AuditRecord, verifyAudit } from "#src/engine/commands/audit/audit.ts";
import { type Commands, createCommands } from "#src/engine/commands/commands.ts";
import { CommandsConfig } from "#src/engine/commands/config.ts";
import { folderGuards } from "#src/engine/commands/guards.ts";
import { createKillSwitch, type FolderKillSwitch } from "#src/engine/commands/kill-switch.ts";
import { createSource } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import type { Source } from "#src/engine/source/source.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import { DEFAULT_TOKEN, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import { runFolder } from "../leftovers.ts";
import { simulatedTransport } from "../simulated-transport.ts";
import { swiftPlace } from "../swift-place.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

/** Commands over the real store, client and quota with the simulated service, on a virtual clock. */
export interface Rig {
  readonly clock: VirtualClock;
  readonly simulator: Simulator;
  readonly store: Store;
  readonly source: Source;
  readonly commands: Commands;
  readonly folder: string;
  readonly killSwitch: FolderKillSwitch;
  send(payload: unknown, changes?: Partial<Arrival>): Promise<void>;
  sendAndWait(payload: unknown, changes?: Partial<Arrival>): Promise<void>;
  results(): Promise<readonly CommandResult[]>;
  outcomes(): Promise<readonly (readonly [string, string, string | null])[]>;
  result(id: string): Promise<CommandResult | undefined>;
  audit(): Promise<readonly AuditRecord[]>;
  readonly posts: readonly (readonly Written[])[];
  requests(endpoint: string): number;
  /** Abandons the old process as a kill does and starts a new one on the same store. */
  restart(config?: ConfigInput): Promise<void>;
  breakStore(broken: boolean): void;
  compareClocks(): Promise<void>;
  slowDown(step: string, ms: number): void;
  close(): Promise<void>;
}

export interface Written {
  readonly tag_id: string;
  readonly value: number | boolean;
}

export type ConfigInput = z.input<typeof CommandsConfig>;

export interface RigOptions {
  readonly simulator?: SimulatorOptionsInput;
  readonly config?: ConfigInput;
  readonly hasToken?: boolean;
  readonly isArmed?: boolean;
  readonly ownTime?: boolean;
  readonly place?: string;
  readonly isStarted?: boolean;
  readonly around?: (store: Store) => Store;
  readonly log?: Log;
  readonly onPost?: (writes: readonly Written[]) => Promise<void>;
}

const WAY = { thereMs: () => 20, backMs: 20, deadlineMs: 60_000 };

export const START_MS = Date.parse("2026-11-20T12:00:00Z");
export const SITE = 12;
export const BOOLEAN_SITE = 3;

export function tagsOf(simulator: Simulator, count: number): readonly string[] {
  const found = [...simulator.world.tags.values()].filter(
    (tag) => tag.site.id === SITE && tag.kind === "analog" && !tag.cumulative,
  );
  return found.slice(0, count).map((tag) => tag.id);
}

export function booleanTags(simulator: Simulator): readonly string[] {
  const found = [...simulator.world.tags.values()].filter(
    (tag) => tag.site.id === BOOLEAN_SITE && tag.kind === "boolean",
  );
  return found.map((tag) => tag.id);
}

export async function createRig(options: RigOptions = {}): Promise<Rig> {
  const virtual = createVirtualClock(START_MS);
  const clock: VirtualClock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const service = options.ownTime === true ? { ...clock, now: () => START_MS + Math.floor(clock.monotonic()) } : clock;
  const simulator = createSimulator(
    { sites: [SITE, BOOLEAN_SITE], epoch: START_MS, alarms: { recorded: false }, ...options.simulator },
    { now: () => service.now() },
  );
  const folder = runFolder(options.place ?? swiftPlace());
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
      const [record] = (change.records ?? []) as readonly { readonly body: { readonly step: string } }[];
      if (slow !== null && record?.body.step === slow.step) await clock.sleep(slow.ms);
      return opened.commit(change);
    },
  };
  await holdBuilding(store, simulator);
  if (options.isArmed !== false)
    await store.commit({ documents: [armedAs({ at: "2026-11-01T00:00:00.000Z", by: "a test", damaged: 0 })] });
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
        await options.onPost?.(writes);
      }
      const reply = await handle(request, signal);
      return isDead ? new Promise(() => undefined) : reply;
    };
    const guarded: Store = {
      ...store,
      commit: (change) => (isDead ? new Promise(() => undefined) : store.commit(change)),
    };
    const quota = createQuota({ source: "main", clock, store: store.quotaStore });
    const clockDoubt = createClockCheck({ clock, log });
    const source = createSource({
      name: "main",
      clockDoubt,
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
      environment: options.hasToken === false ? {} : { TOKEN: DEFAULT_TOKEN },
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
    const made = createCommands({
      config,
      sources: [{ source, timeZone: "Europe/Oslo" }],
      store: options.around?.(guarded) ?? guarded,
      guards: folderGuards(folder),
      clock,
      clockDoubt,
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

  let life = start();
  let commands = await life.made;
  if (options.isStarted !== false) await commands.start(new AbortController().signal);
  const told = async () =>
    (await store.outbox.latest(1_000_000, ["command-result"]))
      .map(({ event }) => (event as Event<"command-result">).data)
      .toReversed();

  async function send(payload: unknown, changes: Partial<Arrival> = {}): Promise<void> {
    const text = typeof payload === "string" ? payload : JSON.stringify(payload);
    await commands.accept(arrivalOf(text, clock.now(), changes));
  }

  return {
    clock,
    simulator,
    store,
    folder,
    killSwitch: createKillSwitch(folder),
    posts,
    get source() {
      return life.source;
    },
    get commands() {
      return commands;
    },
    send,
    async sendAndWait(payload, changes = {}) {
      await send(payload, changes);
      await clock.advance(5_000);
    },
    async compareClocks() {
      for (let n = 0; n < 2; n += 1) {
        const asked = life.source.me(new AbortController().signal);
        await clock.advance(100);
        await asked;
      }
    },
    results: told,
    outcomes: async () => (await told()).map(({ commandId, outcome, reason }) => [commandId, outcome, reason] as const),
    result: async (id) => (await told()).find((each) => each.commandId === id),
    audit: async () => (await store.records<AuditRecord>(AUDIT_LOG, 0, 1_000_000)).map((record) => record.body),
    requests: (endpoint) => simulator.truth.requests().filter((request) => request.endpoint === endpoint).length,
    async restart(input) {
      await life.kill();
      life = start(input);
      commands = await life.made;
      await commands.start(new AbortController().signal);
    },
    breakStore(broken) {
      isBroken = broken;
    },
    slowDown(step, ms) {
      slow = { step, ms };
    },
    async close() {
      const verdict = await verifyAudit(store);
      await life.kill();
      await store.close();
      rmSync(folder, { recursive: true, force: true });
      if (verdict.brokenAt !== null) throw new Error(`The audit chain broke at ${verdict.brokenAt}.`);
    },
  };
}

export function arrivalOf(payload: string | Uint8Array, receivedAtMs: number, changes: Partial<Arrival> = {}): Arrival {
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

export async function holdBuilding(store: Store, simulator: Simulator): Promise<void> {
  const held = (value: unknown, siteId: number | null) => ({
    value,
    siteId,
    since: "2026-01-01T00:00:00.000Z",
    missingSince: null,
  });
  const tags = [...simulator.world.tags.values()].map(({ id, displayName, description, unit, site }) => [
    id,
    held({ id, displayName, description, unit }, site.id),
  ]);
  const sites = new Map([...simulator.world.tags.values()].map((tag) => [tag.gatewayId, tag.site.id]));
  const gateways = [...sites].map(([id, site]) => [
    String(id),
    held({ id: String(id), displayName: `Gateway ${id}`, online: true }, site),
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
