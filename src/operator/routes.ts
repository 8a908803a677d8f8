import { type Context, Hono } from "hono";
import { z } from "zod";
import type { Clock } from "../clock.ts";
import { operatorArrival, operatorSecond } from "../commands/operator-arrival.ts";
import type { Accept } from "../connector.ts";
import type { Secret } from "../log.ts";
import type { Source } from "../source/source.ts";
import type { StatusReport } from "../status/report.ts";
import { tellFailure } from "./failure.ts";
import { opens } from "./key.ts";

/**
 * What a running worker does for the command line: reading, history, lists and commands through the worker's own
 * quota and gate, so that a second process never spends the same quota behind its back.
 */
export interface OperatorOptions {
  readonly key: Secret;
  readonly sources: ReadonlyMap<string, Source>;
  readonly accept: Accept;
  /** Milliseconds that the quota would make a write wait now. */
  readonly expectedWaitMs: (source: string | null) => number;
  readonly clock: Clock;
  readonly report: () => Promise<StatusReport>;
}

export const Call = z.discriminatedUnion("method", [
  z.strictObject({ method: z.literal("sites"), filter: z.record(z.string(), z.unknown()) }),
  z.strictObject({
    method: z.literal("alarms"),
    filter: z.looseObject({ status: z.enum(["active", "resolved", "all"]) }),
  }),
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
const SecondRequest = z.strictObject(Asked);

export function operatorRoutes(options: OperatorOptions): Hono {
  const app = new Hono();
  app.use(async (context, next) => {
    if (!opens(options.key, context.req.header("authorization"))) {
      return context.json({ failure: "config", message: "The operator's key is wrong." }, 401);
    }
    return next();
  });

  app.get("/ping", (context) => context.text("here\n"));
  app.get("/status", async (context) => context.json(await options.report()));

  app.post("/sources/:name", async (context) => {
    const source = options.sources.get(context.req.param("name"));
    if (source === undefined) return context.json({ failure: "config", message: "No such source." }, 404);
    const call = Call.safeParse(await bodyOf(context));
    if (!call.success) return context.json({ failure: "config", message: "No such question." }, 400);
    try {
      return context.json({ result: await answer(source, call.data, context.req.raw.signal) });
    } catch (error) {
      return context.json(tellFailure(error), 502);
    }
  });

  app.post("/commands", async (context) => {
    const request = CommandRequest.safeParse(await bodyOf(context));
    if (!request.success) return context.json({ failure: "config", message: "Not a command." }, 400);
    try {
      await options.accept(operatorArrival({ ...request.data, receivedAtMs: options.clock.now() }));
      return context.json({ result: { waitMs: options.expectedWaitMs(request.data.source) } });
    } catch (error) {
      return context.json(tellFailure(error), 502);
    }
  });
  app.post("/seconds", async (context) => {
    const request = SecondRequest.safeParse(await bodyOf(context));
    if (!request.success) return context.json({ failure: "config", message: "Not a second's word." }, 400);
    try {
      await options.accept(operatorSecond({ ...request.data, receivedAtMs: options.clock.now() }));
      return context.json({ result: {} });
    } catch (error) {
      return context.json(tellFailure(error), 502);
    }
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
    case "read":
      return source.read(call.tagIds, "on-demand", signal);
    case "history": {
      const query = call.query as unknown as Parameters<Source["history"]>[0];
      return call.totals
        ? source.totals(query, "on-demand", signal)
        : source.history(query, "on-demand", signal);
    }
  }
}
