import { Hono } from "hono";
import { ConfigError, Retryable } from "../errors.ts";
import type { Secret } from "../log.ts";
import type { TracedRequest } from "../source/request-trace.ts";
import type { PlanReport } from "../sync/plan/report.ts";
import type { LiveTag } from "../sync/work.ts";
import { tellFailure } from "./failure.ts";
import { type OperatorDoor, opens } from "./key.ts";

/** What a running worker knows of its work on one source, for `plenum plan` and `plenum explain`. */
export interface SourceWork {
  plan(): Promise<PlanReport>;
  tag(id: string): LiveTag | null;
  /** The last tag requests, oldest first. */
  requests(): readonly TracedRequest[];
  /** Since when history has been due and got no turn, UTC; null while it gets its share. */
  historyStarvesSince(): string | null;
}

export interface TagWork {
  readonly live: LiveTag | null;
  /** Of the last tag requests, those with this tag, oldest first. */
  readonly requests: readonly TracedRequest[];
  /** How many tag requests are remembered, and since when. */
  readonly remembered: { readonly requests: number; readonly since: string | null };
}

/** Mounted under `/operator/work`; the same key as the rest of the door. */
export function workRoutes(options: {
  readonly key: Secret;
  readonly sources: ReadonlyMap<string, SourceWork>;
  /** When each job of a source last finished well, by job, UTC. */
  readonly lastPolls: (source: string) => Promise<ReadonlyMap<string, string>>;
}): Hono {
  const app = new Hono();
  app.use(async (context, next) => {
    if (opens(options.key, context.req.header("authorization"))) return next();
    return context.json({ failure: "config", message: "The operator's key is wrong." }, 401);
  });
  app.get("/:source/plan", async (context) => {
    const work = options.sources.get(context.req.param("source"));
    if (work === undefined) return context.json({ failure: "config", message: "No such source." }, 404);
    try {
      return context.json(await work.plan());
    } catch (error) {
      return context.json(tellFailure(error), 502);
    }
  });
  app.get("/:source/polls", async (context) => {
    const name = context.req.param("source");
    if (!options.sources.has(name))
      return context.json({ failure: "config", message: "No such source." }, 404);
    return context.json(Object.fromEntries(await options.lastPolls(name)));
  });
  app.get("/:source/tags/:id", (context) => {
    const work = options.sources.get(context.req.param("source"));
    if (work === undefined) return context.json({ failure: "config", message: "No such source." }, 404);
    const id = context.req.param("id");
    const all = work.requests();
    const answer: TagWork = {
      live: work.tag(id),
      requests: all.filter(({ tagIds }) => tagIds.includes(id)),
      remembered: { requests: all.length, since: all[0]?.at ?? null },
    };
    return context.json(answer);
  });
  return app;
}

export function askPlan(door: OperatorDoor, source: string, signal: AbortSignal): Promise<PlanReport> {
  return ask(door, `${encodeURIComponent(source)}/plan`, signal);
}

/** When each job last finished well, by job, UTC. */
export function askPolls(
  door: OperatorDoor,
  source: string,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  return ask(door, `${encodeURIComponent(source)}/polls`, signal);
}

export function askTag(
  door: OperatorDoor,
  source: string,
  id: string,
  signal: AbortSignal,
): Promise<TagWork> {
  return ask(door, `${encodeURIComponent(source)}/tags/${encodeURIComponent(id)}`, signal);
}

async function ask<T>(door: OperatorDoor, path: string, signal: AbortSignal): Promise<T> {
  const response = await fetch(new URL(`/operator/work/${path}`, door.url), {
    headers: { authorization: `Bearer ${door.key.reveal()}` },
    redirect: "error",
    signal,
  }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw new Retryable("The worker does not answer any more.", { cause: error });
  });
  if (response.ok) return (await response.json()) as T;
  const told = (await response.json().catch(() => ({}))) as { readonly message?: string };
  const message = told.message ?? `The worker answered ${response.status}.`;
  throw response.status === 404 ? new ConfigError(message) : new Retryable(message);
}
