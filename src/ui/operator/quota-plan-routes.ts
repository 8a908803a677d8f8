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
  liveTagState(id: string): LiveTagState | null;
  tagReadClass(id: string): TagReadClass | null;
  requests(): readonly TracedRequest[];
  counts(): SourceCounts;
  suddenChanges(): readonly SuddenChange[];
  /** UTC time since which due history requests have waited for quota; null while they wait only a usual time. */
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
    (computeResult: (activity: SourceActivity, id: string) => unknown) =>
    async (context: Context): Promise<Response> => {
      const sourceActivity = sources.get(context.req.param("source") ?? "");
      if (sourceActivity === undefined) return context.json({ failure: "config", message: "No such source." }, 404);
      return context.json({ result: await computeResult(sourceActivity, context.req.param("id") ?? "") });
    };
  const lastPollTimes = (activity: SourceActivity) =>
    Object.fromEntries([...activity.counts().lastPolls].map(([job, { atMs }]) => [job, isoUtc(atMs)]));
  const tagActivityOf = (activity: SourceActivity, id: string): TagActivity => {
    const requests = activity.requests();
    return {
      live: activity.liveTagState(id),
      requests: requests.filter(({ tagIds }) => tagIds.includes(id)),
      remembered: { requests: requests.length, since: requests[0]?.at ?? null },
    };
  };
  return new Hono()
    .get(
      "/:source/plan",
      respondForSource((activity) => activity.plan()),
    )
    .get("/:source/polls", respondForSource(lastPollTimes))
    .get("/:source/tags/:id", respondForSource(tagActivityOf));
}
