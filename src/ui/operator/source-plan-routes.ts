import { type Context, Hono } from "hono";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { TracedRequest } from "../../engine/source/request-trace.ts";
import type {
  FirstInventoryReport,
  LiveTagState,
  SourceCounts,
  SuddenChange,
  TagReadClass,
} from "../../engine/sync/live-tag-state.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";

/** Work of a running worker on one source, for `plenum plan` and `plenum explain`. */
export interface SourceWork {
  plan(): Promise<PlanReport>;
  tag(id: string): LiveTagState | null;
  reading(id: string): TagReadClass | null;
  /** The last tag requests, oldest first. */
  requests(): readonly TracedRequest[];
  counts(): SourceCounts;
  suddenChanges(): readonly SuddenChange[];
  /** UTC time since when history is due without a request; null while it gets its quota share. */
  historyStarvesSince(): string | null;
  firstInventory(): FirstInventoryReport;
}

export interface TagWork {
  readonly live: LiveTagState | null;
  readonly requests: readonly TracedRequest[];
  readonly remembered: { readonly requests: number; readonly since: string | null };
}

export interface WorkOptions {
  readonly sources: ReadonlyMap<string, SourceWork>;
}

export function workRoutes({ sources }: WorkOptions): Hono {
  const respond =
    (resultOf: (work: SourceWork, id: string) => unknown) =>
    async (context: Context): Promise<Response> => {
      const sourceWork = sources.get(context.req.param("source") ?? "");
      if (sourceWork === undefined) return context.json({ failure: "config", message: "No such source." }, 404);
      return context.json({ result: await resultOf(sourceWork, context.req.param("id") ?? "") });
    };
  const lastPollTimes = (work: SourceWork) =>
    Object.fromEntries([...work.counts().lastPolls].map(([job, { atMs }]) => [job, isoUtc(atMs)]));
  const tagWorkOf = (work: SourceWork, id: string): TagWork => {
    const all = work.requests();
    return {
      live: work.tag(id),
      requests: all.filter(({ tagIds }) => tagIds.includes(id)),
      remembered: { requests: all.length, since: all[0]?.at ?? null },
    };
  };
  return new Hono()
    .get(
      "/:source/plan",
      respond((work) => work.plan()),
    )
    .get("/:source/polls", respond(lastPollTimes))
    .get("/:source/tags/:id", respond(tagWorkOf));
}
