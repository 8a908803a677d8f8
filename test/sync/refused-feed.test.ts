import { describe, expect, test } from "vitest";
import { SERVICE_SUBJECT } from "#src/core/model/event.ts";
import { sleepFor } from "#src/core/runtime/waiting.ts";
import type { LoopJob } from "#src/engine/sync/job.ts";
import { harness, MINUTE, openHarness, TOKEN } from "./alarm-harness.ts";

const SCHEDULES = {
  ...{ token: "0 * * * *", sites: "10 * * * * *", alarms: "*/30 * * * * *", resolved_sweep: "20 * * * * *" },
  ...{ gateways: "30 * * * * *", hosts: "40 */2 * * * *", systems: "45 */2 * * * *", tags: "50 */2 * * * *" },
} as const;

async function started(): Promise<void> {
  const asking = (name: string, ask: (signal: AbortSignal) => Promise<unknown>): LoopJob => ({
    name,
    async follow({ draining, forced, reportSuccess }) {
      do {
        await ask(forced);
        reportSuccess();
      } while (await sleepFor(harness.clock, MINUTE, draining));
    },
  });
  const firstTag = () => [...harness.simulator.world.tags.keys()].slice(0, 1);
  const live = asking("live", (signal) => harness.source().read(firstTag(), "live", signal));
  const history = asking("history", async (signal) => {
    const toMs = Math.floor(harness.clock.now() / 1000) * 1000;
    const range = { from: new Date(toMs - 3_600_000).toISOString(), to: new Date(toMs).toISOString() };
    const query = { tagIds: firstTag(), ...range, resolution: "1h", timeZone: "Europe/Stockholm" } as const;
    await harness.source().history(query, "history", signal);
  });
  const sync = { schedules: SCHEDULES, spread: "0s" };
  openHarness({ simulator: { sites: [3] }, sync, followers: [live, history] });
  harness.simulator.control.raiseAlarm({ siteId: 3 });
  await harness.start();
  await harness.clock.advance(4 * MINUTE);
}

function change(): void {
  const { control, world } = harness.simulator;
  const [gateway] = world.gateways.keys();
  control.raiseAlarm({ siteId: 3 });
  control.setGateway(gateway ?? 0, false);
  control.changeInventory("tags", [...world.tags.keys()][1] ?? "", { removed: true });
}

const LISTS = ["sites", "alarms", "tags", "gateways", "hosts", "systems", "me"] as const;

describe("errors with HTTP 200", () => {
  test.each([401, 403, 404, 422, 429, 500, 503, 504])(
    "%i from every endpoint: emits only the outage, and changes no stored alarm",
    async (status) => {
      await started();
      const before = harness.store.events.length;
      const stored = await harness.store.documents("alarm/main");
      harness.simulator.control.setFaults([{ fault: { kind: "error", status } }]);
      change();
      await harness.clock.advance(10 * MINUTE);
      const emitted = harness.store.events.slice(before).filter(({ type }) => !/^(source|site-status)-/.test(type));
      expect(emitted).toEqual([]);
      expect(await harness.store.documents("alarm/main")).toEqual(stored);
    },
  );

  test.each(LISTS.flatMap((endpoint) => [401, 404, 422, 500].map((status) => [status, endpoint] as const)))(
    "%i from %s only: emits no event about objects of that endpoint",
    async (status, endpoint) => {
      await started();
      const before = harness.store.events.length;
      harness.simulator.control.setFaults([{ match: { endpoints: [endpoint] }, fault: { kind: "error", status } }]);
      change();
      await harness.clock.advance(5 * MINUTE);
      const emittedKinds = harness.store.events.slice(before).map((event) => event.type);
      const kinds = emittedKinds.filter((kind) => kind !== "site-status-changed");
      const own = endpoint === "me" ? "token" : endpoint.replace(/s$/, "");
      expect(kinds.filter((kind) => kind.startsWith(own))).toEqual([]);
    },
  );
});

test("requests are retried a minute later when the service rejects the token right after maintenance", async () => {
  await started();
  const { control } = harness.simulator;
  control.setFaults([{ match: {}, fault: { kind: "maintenance", retry_after: 20 } }]);
  await harness.clock.advance(5 * MINUTE);
  control.changeToken(TOKEN, { revoked: true });
  control.setFaults([]);
  await harness.clock.advance(MINUTE);
  control.changeToken(TOKEN, { revoked: false });
  const requests = harness.requests.length;
  await harness.clock.advance(MINUTE + 10_000);
  expect(harness.requests.slice(requests).map(({ path }) => path)).toContain("/api/v1/alarms");
});

const ROUTES = [
  ["a proxy", { kind: "missing_route" }],
  ["the service", { kind: "error", status: 404 }],
] as const;

test.each(ROUTES)("a missing endpoint GET me, as reported by %s, is no outage", async (_who, fault) => {
  await started();
  const before = harness.store.events.length;
  harness.simulator.control.setFaults([{ match: { endpoints: ["me"] }, fault }]);
  await harness.restart();
  const id = harness.simulator.control.raiseAlarm({ siteId: 3 });
  await harness.clock.advance(90 * MINUTE);
  const update = harness.store.events.slice(before);
  expect(update.map(({ subject }) => subject)).toContain(`site/3/alarm/${id}`);
  expect(update.filter(({ subject }) => subject === SERVICE_SUBJECT)).toEqual([]);
});

test.each(ROUTES)(
  "a service without any endpoint, as reported by %s, is unavailable until an endpoint responds",
  async (_who, fault) => {
    await started();
    const before = harness.store.events.length;
    const update = () => {
      const events = harness.store.events.slice(before).filter(({ type }) => type.startsWith("source-"));
      return events.map(({ type, subject }) => `${type} ${subject}`);
    };
    harness.simulator.control.setFaults([{ fault }]);
    await harness.clock.advance(2 * MINUTE);
    expect(update()).toEqual([`source-unavailable ${SERVICE_SUBJECT}`]);
    const requests = harness.requests.length;
    await harness.clock.advance(30 * MINUTE);
    expect(harness.requests.length - requests).toBeLessThan(30);
    harness.simulator.control.setFaults([{ match: { endpoints: ["me"] }, fault }]);
    await harness.clock.advance(10 * MINUTE);
    expect(update()).toEqual([`source-unavailable ${SERVICE_SUBJECT}`, `source-available ${SERVICE_SUBJECT}`]);
  },
);

describe("a single forbidden endpoint", () => {
  const message = "This action is unauthorized.";
  const json = { "content-type": "application/json" };
  const shape = (status: number, body: object) => ({ status, headers: json, body: JSON.stringify(body) });
  const SHAPES = {
    "inside HTTP 200": shape(200, { errors: [{ status: 403, message }] }),
    "as HTTP 403 with errors": shape(403, { errors: [{ status: 403, message, meta: [] }] }),
    "as HTTP 403 with the framework's message": shape(403, { message }),
    "as HTTP 403 with a page": { status: 403, headers: { "content-type": "text/html" }, body: "<h1>Forbidden</h1>" },
  };
  const FEATURES = {
    ...{ sites: ["sites"], alarms: ["alarms", "resolved_sweep"], tags: ["tags"], gateways: ["gateways"] },
    ...{ hosts: ["hosts"], systems: ["systems"], read: ["live"], history: ["history"] },
  };
  const cases = Object.keys(FEATURES).flatMap((feature) =>
    Object.keys(SHAPES).map((shape) => [feature, shape] as const),
  );

  test.each(cases)(
    "%s, forbidden %s: emits one failure per job, retries with growing pauses, and runs the other jobs",
    async (name, form) => {
      const jobs = FEATURES[name as keyof typeof FEATURES];
      const isFollower = name === "read" || name === "history";
      await started();
      const before = harness.store.events.length;
      const asked = harness.requests.length;
      const fault = { kind: "raw", ...SHAPES[form as keyof typeof SHAPES] };
      harness.simulator.control.setFaults([{ match: { endpoints: [name] }, fault }]);
      await harness.clock.advance(50 * MINUTE);
      const features = jobs.map((job) => `source-unavailable feature/${job}`);
      const update = () => harness.store.events.slice(before).map((event) => `${event.type} ${event.subject}`);
      expect(update().sort()).toEqual(features.sort());
      const path = new RegExp(isFollower ? `tags/${name}$` : `v1/${name}$`);
      const requests = harness.requests.slice(asked).filter((request) => path.test(request.path));
      // Five requests a minute apart, then one every 15 minutes.
      const limit = (5 + 4) * jobs.length;
      expect(requests.length).toBeLessThanOrEqual(limit + (name === "read" ? 5 : 0));
      const others = harness.polls.filter((poll) => poll.outcome === "ok" && !jobs.includes(poll.job));
      expect(others.filter((poll) => poll.atMs > harness.clock.now() - 5 * MINUTE).length).toBeGreaterThan(15);
      harness.simulator.control.setFaults([]);
      await harness.clock.advance(16 * MINUTE);
      const back = jobs.map((job) => `source-available feature/${job}`);
      expect(update().slice(features.length).sort()).toEqual(back.sort());
    },
  );

  test.each(Object.keys(SHAPES))("forbidden for four minutes %s: emits a new alarm a minute later", async (form) => {
    await started();
    const { control } = harness.simulator;
    const fault = { kind: "raw", ...SHAPES[form as keyof typeof SHAPES] };
    control.setFaults([{ match: { endpoints: ["alarms"] }, fault }]);
    await harness.clock.advance(4 * MINUTE);
    const id = control.raiseAlarm({ siteId: 3 });
    control.setFaults([]);
    await harness.clock.advance(MINUTE + 10_000);
    expect(harness.store.events.map(({ subject }) => subject)).toContain(`site/3/alarm/${id}`);
  });
});
