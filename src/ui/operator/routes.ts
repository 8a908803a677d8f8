import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { z } from "zod";
import type { Accept } from "../../core/connector.ts";
import type { ReloadReport } from "../../core/model/reload-facts.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { operatorArrival, operatorSecond } from "../../engine/commands/operator-arrival.ts";
import type { Source } from "../../engine/source/source.ts";
import type { StatusReport } from "../status/report.ts";
import { encodeFailure } from "./failure.ts";
import { type WorkOptions, workRoutes } from "./work.ts";

/**
 * Requests of the command line to a running worker: reading, history, lists and commands use the worker's own quota and gate, so
 * that a second process never spends the same quota.
 */
export interface OperatorOptions {
  readonly sources: ReadonlyMap<string, Source>;
  readonly accept: Accept;
  /** Milliseconds that the quota would make a write wait now. */
  readonly expectedWaitMs: (source: string | null) => number;
  readonly clock: Clock;
  readonly report: () => Promise<StatusReport>;
  /** Why nothing can be done yet, or any more; null while the worker is ready. */
  readonly notReady: () => string | null;
  readonly work: WorkOptions;
  /** Reads the configuration file again, or only looks; absent where the worker was given none. */
  readonly reload?: (isDryRun: boolean) => Promise<ReloadReport>;
  /** The configuration that the worker accepted last, and its file. */
  readonly configuration: () => AcceptedConfiguration;
  /** The kill switch of a fleet; absent in a lone worker, whose kill switch is a file in the state folder. */
  readonly fleetWrites?: {
    /** False while the database does not have it yet: until then it counts at this member alone. */
    stop(by: string): Promise<boolean>;
    /** False where writing was stopped again meanwhile, and stays so. */
    resume(): Promise<boolean>;
  };
  /** Message for a source that this worker does not have. */
  readonly noSource?: (name: string) => Promise<string>;
  /** The last lines of the worker's log. */
  readonly log: () => readonly string[];
}

/** A configuration as the worker accepted it last. It names secrets by reference only. */
export interface AcceptedConfiguration {
  /** Absolute; null where it came from no file. */
  readonly file: string | null;
  readonly config: unknown;
}

/** Largest request in bytes: 20 tags, a time range, a command. */
const LARGEST_BODY = 64 * 1024;

/** The interface lists these by site; the other filters are the list's own. */
const InSite = z.looseObject({ siteId: z.int() });

export const Call = z.discriminatedUnion("method", [
  z.strictObject({ method: z.literal("sites"), filter: z.record(z.string(), z.unknown()) }),
  z.strictObject({
    method: z.literal("alarms"),
    filter: z.looseObject({ status: z.enum(["active", "resolved", "all"]) }),
  }),
  z.strictObject({ method: z.enum(["tags", "gateways", "hosts", "systems"]), filter: InSite }),
  z.strictObject({ method: z.literal("read"), tagIds: z.array(z.string()).min(1).max(20) }),
  z.strictObject({ method: z.literal("history"), query: z.looseObject({}), totals: z.boolean() }),
]);
export type Call = z.output<typeof Call>;

const Asked = {
  id: z.string().min(1).max(300),
  source: z.string().nullable(),
  value: z.union([z.number(), z.boolean()]),
  user: z.string().nullable().default(null),
};
const CommandRequest = z.strictObject({
  ...Asked,
  tagId: z.string(),
  forSeconds: z.number().positive().nullable(),
  ttlSeconds: z.number().positive().nullable().default(null),
});
const WritesRequest = z.strictObject({ stopped: z.boolean(), by: z.string().max(300) });
const ReloadRequest = z.strictObject({ dryRun: z.boolean() });
const SecondRequest = z.strictObject(Asked);

export function operatorRoutes(options: OperatorOptions): Hono {
  const app = new Hono();
  const onError = (context: Context) => context.json({ failure: "config", message: "The request is too long." }, 413);
  app.use(bodyLimit({ maxSize: LARGEST_BODY, onError }));
  app.onError((error, context) => context.json(encodeFailure(error), 502));
  app.get("/ping", (context) => context.json({ result: "here" }));
  app.get("/ready", (context) => context.json({ result: options.notReady() }));
  app.get("/status", async (context) => context.json({ result: await options.report() }));
  app.get("/log", (context) => context.json({ result: options.log() }));
  app.get("/configuration", (context) => context.json({ result: options.configuration() }));
  app.route("/work", workRoutes(options.work));
  app.post("/writes", async (context) => {
    const asked = WritesRequest.safeParse(await bodyOf(context));
    const { fleetWrites } = options;
    if (!asked.success || fleetWrites === undefined)
      return context.json({ failure: "config", message: "This worker has no kill switch of a fleet." }, 400);
    const { by, stopped } = asked.data;
    return context.json({ result: await (stopped ? fleetWrites.stop(by) : fleetWrites.resume()) });
  });

  // Requests to the service, and writes, wait until the worker has started.
  app.post("*", (context, next) => {
    const reason = options.notReady();
    if (reason === null) return next();
    return Promise.resolve(context.json({ failure: "retryable", message: reason }, 503));
  });
  app.post("/sources/:name", async (context) => {
    const name = context.req.param("name");
    const source = options.sources.get(name);
    if (source === undefined) {
      const message = (await options.noSource?.(name)) ?? "No such source.";
      return context.json({ failure: "config", message }, 404);
    }
    const asked = Call.safeParse(await bodyOf(context));
    if (!asked.success) return context.json({ failure: "config", message: "No such question." }, 400);
    return context.json({ result: await answer(source, asked.data, context.req.raw.signal) });
  });
  app.post("/commands", async (context) => {
    const command = CommandRequest.safeParse(await bodyOf(context));
    if (!command.success) return context.json({ failure: "config", message: "Not a command." }, 400);
    await options.accept(operatorArrival({ ...command.data, receivedAtMs: options.clock.now() }));
    return context.json({ result: { waitMs: options.expectedWaitMs(command.data.source) } });
  });
  app.post("/seconds", async (context) => {
    const second = SecondRequest.safeParse(await bodyOf(context));
    if (!second.success) return context.json({ failure: "config", message: "Not a second's word." }, 400);
    await options.accept(operatorSecond({ ...second.data, receivedAtMs: options.clock.now() }));
    return context.json({ result: {} });
  });
  app.post("/reload", async (context) => {
    const asked = ReloadRequest.safeParse(await bodyOf(context));
    if (!asked.success) return context.json({ failure: "config", message: "Not a reload." }, 400);
    if (options.reload === undefined) {
      const message = "This worker was started without a configuration file, so there is none to read again.";
      return context.json({ failure: "config", message }, 409);
    }
    return context.json({ result: await options.reload(asked.data.dryRun) });
  });
  return app;
}

/** Null for what is no JSON; the schema then refuses it. */
async function bodyOf(context: Context): Promise<unknown> {
  try {
    return await context.req.json();
  } catch {
    return null;
  }
}

async function answer(source: Source, call: Call, signal: AbortSignal): Promise<unknown> {
  switch (call.method) {
    case "sites":
      return Array.fromAsync(source.sites(call.filter, signal));
    case "alarms":
      return Array.fromAsync(source.alarms(call.filter, signal));
    case "tags":
    case "gateways":
    case "hosts":
    case "systems":
      return Array.fromAsync<unknown>(source[call.method](call.filter, signal));
    case "read":
      return source.read(call.tagIds, "on-demand", signal);
    case "history": {
      const query = call.query as unknown as Parameters<Source["history"]>[0];
      return call.totals ? source.totals(query, "on-demand", signal) : source.history(query, "on-demand", signal);
    }
  }
}
