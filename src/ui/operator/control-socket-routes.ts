import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { z } from "zod";
import type { AcceptCommand } from "../../core/connector.ts";
import { asFailure, type ConfigErrorReason, errorText, type Failure } from "../../core/errors/errors.ts";
import type { ReloadReport } from "../../core/model/config-change-report.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import { toOperatorApproval, toOperatorCommand } from "../../engine/commands/operator-command-message.ts";
import type { WriteLockChange } from "../../engine/commands/write-locks.ts";
import type { Source } from "../../engine/source/source.ts";
import type { StatusReport } from "../status/status-report.ts";
import { type SourcePlanRouteOptions, sourcePlanRoutes } from "./quota-plan-routes.ts";

/** Functions of the worker behind the control socket, through which the command line sends its requests. */
export interface OperatorRouteOptions {
  readonly sources: ReadonlyMap<string, Source>;
  readonly acceptCommand: AcceptCommand;
  readonly expectedWaitMs: (source: string | null) => number;
  readonly changeLock: (change: WriteLockChange) => Promise<void>;
  readonly clock: Clock;
  readonly report: () => Promise<StatusReport>;
  /** Returns why the worker accepts no requests while it starts or stops; null while it is ready. */
  readonly notReadyReason: () => string | null;
  readonly sourcePlanOptions: SourcePlanRouteOptions;
  /** Reloads the configuration file; a dry run only reports the changes. Absent if the worker has no file. */
  readonly reload?: (isDryRun: boolean) => Promise<ReloadReport>;
  readonly configuration: () => AcceptedConfiguration;
  /** Kill switch of a fleet; absent in a single worker, whose kill switch is a file in the state folder. */
  readonly fleetWrites?: {
    /** Returns false if the database did not store the stop: then only this fleet member stops writing. */
    stopWrites(by: string): Promise<boolean>;
    /** Returns false if a user stopped writing again in the meantime. */
    resumeWrites(): Promise<boolean>;
  };
  readonly missingSourceMessage?: (name: string) => Promise<string>;
}

/** Configuration that the worker uses, with references to secrets in place of the secrets. */
export interface AcceptedConfiguration {
  readonly file: string | null;
  readonly config: unknown;
}

/** Error as the worker sends it to the command line, which derives its exit code from `failure`. */
export interface EncodedFailure {
  readonly failure: Failure["kind"];
  readonly message: string;
  readonly reason?: ConfigErrorReason | undefined;
  readonly field?: string | undefined;
}

export function encodeFailure(error: unknown): EncodedFailure {
  const failure = asFailure(error);
  const { reason, field } = failure.kind === "config" ? failure : {};
  return { failure: failure.kind, message: maskCredentials(errorText(error)), reason, field };
}

const MAX_REQUEST_BYTES = 64 * 1024;
export const SourceRequest = z.discriminatedUnion("method", [
  z.strictObject({ method: z.literal("sites"), filter: z.record(z.string(), z.unknown()) }),
  z.strictObject({
    method: z.literal("alarms"),
    filter: z.looseObject({ status: z.enum(["active", "resolved", "all"]) }),
  }),
  z.strictObject({
    method: z.enum(["tags", "gateways", "hosts", "systems"]),
    filter: z.looseObject({ siteId: z.int() }),
  }),
  z.strictObject({ method: z.literal("read"), tagIds: z.array(z.string()).min(1).max(20) }),
  z.strictObject({ method: z.literal("history"), query: z.looseObject({}), totals: z.boolean() }),
]);
export type SourceRequest = z.output<typeof SourceRequest>;

const SecondApprovalRequest = z.strictObject({
  id: z.string().min(1).max(300),
  source: z.string().nullable(),
  value: z.union([z.number(), z.boolean()]),
  user: z.string().nullable().default(null),
});
const CommandRequest = SecondApprovalRequest.extend({
  tagId: z.string(),
  forSeconds: z.number().positive().nullable(),
  ttlSeconds: z.number().positive().nullable().default(null),
});
export type SecondApproval = z.input<typeof SecondApprovalRequest>;
export type CommandBody = z.input<typeof CommandRequest>;
const FleetWritesRequest = z.strictObject({ stopped: z.boolean(), by: z.string().max(300) });
export type FleetWrites = z.input<typeof FleetWritesRequest>;
const LockText = z.string().min(1).max(500);
const LockChangeRequest = z.strictObject({
  target: z.strictObject({ source: LockText, scope: z.enum(["tag", "system", "site"]), id: LockText }),
  lock: z.strictObject({ owner: LockText, reason: LockText, until: z.iso.datetime() }).nullable(),
  by: LockText,
});
const ReloadRequest = z.strictObject({ dryRun: z.boolean() });

export function operatorRoutes(options: OperatorRouteOptions): Hono {
  const app = new Hono();
  const respondRefusal = (context: Context, status: 400 | 404 | 409 | 413, message: string) =>
    context.json({ failure: "config", message }, status);
  const onError = (context: Context) => respondRefusal(context, 413, "The request is too long.");
  app.use(bodyLimit({ maxSize: MAX_REQUEST_BYTES, onError }));
  app.onError((error, context) => context.json(encodeFailure(error), 502));
  app.get("/ping", (context) => context.json({ result: "here" }));
  app.get("/ready", (context) => context.json({ result: options.notReadyReason() }));
  app.get("/status", async (context) => context.json({ result: await options.report() }));
  app.get("/configuration", (context) => context.json({ result: options.configuration() }));
  app.route("/work", sourcePlanRoutes(options.sourcePlanOptions));
  function addPostRoute<T>(
    path: string,
    schema: z.ZodType<T>,
    invalidBodyMessage: string,
    handleBody: (body: T, context: Context) => Promise<Response>,
  ): void {
    app.post(path, async (context) => {
      const body = schema.safeParse(await context.req.json().catch(() => null));
      return body.success ? handleBody(body.data, context) : respondRefusal(context, 400, invalidBodyMessage);
    });
  }
  const noFleetMessage = "This worker has no kill switch of a fleet.";
  addPostRoute("/writes", FleetWritesRequest, noFleetMessage, async ({ by, stopped }, context) => {
    const { fleetWrites } = options;
    if (fleetWrites === undefined) return respondRefusal(context, 400, noFleetMessage);
    return context.json({ result: await (stopped ? fleetWrites.stopWrites(by) : fleetWrites.resumeWrites()) });
  });
  // While the worker starts or stops, it rejects commands and requests to the monitoring service.
  app.post("*", async (context, next) => {
    const message = options.notReadyReason();
    return message === null ? next() : context.json({ failure: "retryable", message }, 503);
  });
  addPostRoute("/sources/:name", SourceRequest, "No such question.", async (request, context) => {
    const sourceName = context.req.param("name") ?? "";
    const source = options.sources.get(sourceName);
    if (source === undefined)
      return respondRefusal(context, 404, (await options.missingSourceMessage?.(sourceName)) ?? "No such source.");
    return context.json({ result: await readFromSource(source, request, context.req.raw.signal) });
  });
  addPostRoute("/commands", CommandRequest, "Not a command.", async (command, context) => {
    await options.acceptCommand(toOperatorCommand({ ...command, receivedAtMs: options.clock.now() }));
    return context.json({ result: { waitMs: options.expectedWaitMs(command.source) } });
  });
  addPostRoute("/seconds", SecondApprovalRequest, "This is not a valid second approval.", async (approval, context) => {
    await options.acceptCommand(toOperatorApproval({ ...approval, receivedAtMs: options.clock.now() }));
    return context.json({ result: {} });
  });
  addPostRoute("/locks", LockChangeRequest, "Not a lock.", async (change, context) => {
    await options.changeLock(change);
    return context.json({ result: {} });
  });
  addPostRoute("/reload", ReloadRequest, "Not a reload.", async ({ dryRun }, context) => {
    if (options.reload !== undefined) return context.json({ result: await options.reload(dryRun) });
    const message = "This worker was started without a configuration file, so there is none to read again.";
    return respondRefusal(context, 409, message);
  });
  return app;
}

async function readFromSource(source: Source, request: SourceRequest, signal: AbortSignal): Promise<unknown> {
  if (request.method === "read") return source.read(request.tagIds, "on-demand", signal);
  if (request.method !== "history")
    return Array.fromAsync<unknown>(source[request.method](request.filter as never, signal));
  const query = request.query as unknown as Parameters<Source["history"]>[0];
  return source[request.totals ? "totals" : "history"](query, "on-demand", signal);
}
