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

export interface SourceActivity {
  plan(): Promise<PlanReport>;
  tag(id: string): LiveTagState | null;
  reading(id: string): TagReadClass | null;
  requests(): readonly TracedRequest[];
  counts(): SourceCounts;
  suddenChanges(): readonly SuddenChange[];
  /** UTC time since which due history was not requested; null while history gets its share of the quota. */
  historyStarvesSince(): string | null;
  firstInventory(): FirstInventoryReport;
}

export interface TagActivity {
  readonly live: LiveTagState | null;
  readonly requests: readonly TracedRequest[];
  readonly remembered: { readonly requests: number; readonly since: string | null };
}

export interface SourcePlanRouteOptions {
  readonly sources: ReadonlyMap<string, SourceActivity>;
}

export function sourcePlanRoutes({ sources }: SourcePlanRouteOptions): Hono {
  const respondForSource =
    (resultOf: (work: SourceActivity, id: string) => unknown) =>
    async (context: Context): Promise<Response> => {
      const sourceActivity = sources.get(context.req.param("source") ?? "");
      if (sourceActivity === undefined) return context.json({ failure: "config", message: "No such source." }, 404);
      return context.json({ result: await resultOf(sourceActivity, context.req.param("id") ?? "") });
    };
  const lastPollTimes = (work: SourceActivity) =>
    Object.fromEntries([...work.counts().lastPolls].map(([job, { atMs }]) => [job, isoUtc(atMs)]));
  const tagActivityOf = (work: SourceActivity, id: string): TagActivity => {
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
      respondForSource((work) => work.plan()),
    )
    .get("/:source/polls", respondForSource(lastPollTimes))
    .get("/:source/tags/:id", respondForSource(tagActivityOf));
}
