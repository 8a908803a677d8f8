import { type Context, Hono } from "hono";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { TracedRequest } from "../../engine/source/request-trace.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import type { FirstInventoryReport, LiveTag, SourceCounts, SuddenChange, TagReading } from "../../engine/sync/work.ts";
import { type ControlSocket, call } from "./call.ts";

/** Work of a running worker on one source, for `plenum plan` and `plenum explain`. */
export interface SourceWork {
  plan(): Promise<PlanReport>;
  tag(id: string): LiveTag | null;
  reading(id: string): TagReading | null;
  /** The last tag requests, oldest first. */
  requests(): readonly TracedRequest[];
  counts(): SourceCounts;
  /** Values that changed at once and are not settled yet. */
  suddenChanges(): readonly SuddenChange[];
  /** Since when history has been due and got no turn, UTC; null while it gets its share. */
  historyStarvesSince(): string | null;
  firstInventory(): FirstInventoryReport;
}

export interface TagWork {
  readonly live: LiveTag | null;
  /** Recent tag requests that contained this tag, oldest first. */
  readonly requests: readonly TracedRequest[];
  /** How many tag requests are remembered, and since when. */
  readonly remembered: { readonly requests: number; readonly since: string | null };
}

export interface WorkOptions {
  readonly sources: ReadonlyMap<string, SourceWork>;
}

/** Routes below `/work`; the parent app handles errors. */
export function workRoutes({ sources }: WorkOptions): Hono {
  const app = new Hono();
  app.get("/:source/plan", async (context) => {
    const work = sources.get(context.req.param("source"));
    return work === undefined ? noSource(context) : context.json({ result: await work.plan() });
  });
  app.get("/:source/polls", (context) => {
    const work = sources.get(context.req.param("source"));
    if (work === undefined) return noSource(context);
    const polls = [...work.counts().lastPolls].map(([job, { atMs }]) => [job, isoUtc(atMs)] as const);
    return context.json({ result: Object.fromEntries(polls) });
  });
  app.get("/:source/tags/:id", (context) => {
    const work = sources.get(context.req.param("source"));
    if (work === undefined) return noSource(context);
    const id = context.req.param("id");
    const all = work.requests();
    const result: TagWork = {
      live: work.tag(id),
      requests: all.filter(({ tagIds }) => tagIds.includes(id)),
      remembered: { requests: all.length, since: all[0]?.at ?? null },
    };
    return context.json({ result });
  });
  return app;
}

function noSource(context: Context): Response {
  return context.json({ failure: "config", message: "No such source." }, 404);
}

export function requestPlan(door: ControlSocket, source: string, signal: AbortSignal): Promise<PlanReport> {
  return call(door, `/work/${encodeURIComponent(source)}/plan`, { signal });
}

/** When each job last finished well, by job, UTC. */
export function requestPolls(
  door: ControlSocket,
  source: string,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  return call(door, `/work/${encodeURIComponent(source)}/polls`, { signal });
}

export function requestTag(door: ControlSocket, source: string, id: string, signal: AbortSignal): Promise<TagWork> {
  return call(door, `/work/${encodeURIComponent(source)}/tags/${encodeURIComponent(id)}`, { signal });
}
