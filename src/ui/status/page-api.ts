import { randomUUID } from "node:crypto";
import { type Context, Hono } from "hono";
import { z } from "zod";
import type { TagScalar } from "../../core/model/building.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Outbox } from "../../engine/store/store.ts";
import { acceptJsonFromOwnPage, proxyUserName, refusalForPost, roleOfRequest, visitorName } from "./access-control.ts";
import { alarmResponse, filterAlarmRows } from "./alarm-api-responses.ts";
import { createCachedDocuments } from "./cache-of-stored-documents.ts";
import { createCommandLister } from "./command-list.ts";
import type { AlarmQuery, PlotQuery, ScopeQuery } from "./query-parameters.ts";
import * as queries from "./query-parameters.ts";
import type { PageApiOptions, ResponseContext } from "./response-context.ts";
import { sinkResponse } from "./sink-reports.ts";
import { alarmDays, siteResponse } from "./site-responses.ts";
import { sourceResponse } from "./source-reports.ts";
import type { StatusConfig } from "./status-config.ts";
import type { Status } from "./status-report.ts";
import { tagResponse } from "./tag-api-response.ts";
import { createFetchedHistory, plotResponse } from "./tag-history-plot.ts";
import { createTagIndex } from "./tag-index.ts";

export interface SourceHolder {
  readonly message: string;
  /** Name and page of the member that holds the source; null when no member holds the source. */
  readonly holder: { readonly name: string; readonly page: string } | null;
}

/** Responses to the page. Times are UTC; plot columns use seconds since 1970. Null means unknown, not 0. */
export type PageApi = ReturnType<typeof createPageApi> & {
  /** Returns the fleet member that polls a source; null for an unconfigured source. Absent without a fleet. */
  holderOf?(source: string): Promise<SourceHolder | null>;
};

export function createPageApi(options: PageApiOptions & { readonly status: Pick<Status, "sinks"> }) {
  const { clock, live, plots, sinksAndFilters, sources, status, store } = options;
  const tags = createTagIndex({ store, clock, sources, findReadClass: live.findReadClass });
  const listCommands = createCommandLister(store);
  const fetchedHistory = createFetchedHistory(clock, live.fetchHistory);
  const context: ResponseContext = { ...options, cache: createCachedDocuments(store, clock), tags, listCommands };
  return {
    sources,
    async sinkNames(): Promise<readonly string[]> {
      const sinkLags = await store.outbox.lag();
      return [...new Set([...sinksAndFilters().sinks, ...sinkLags.map(({ sink }) => sink)])];
    },
    tags: tags.list,
    tag: (source: string, id: string) => tagResponse(context, source, id),
    alarm: (query: AlarmQuery) => alarmResponse(context, query),
    site: (source: string, id: number) => siteResponse(context, source, id),
    alarmDays: (scope: ScopeQuery) => alarmDays(context, scope),
    commands: listCommands,
    async sink(name: string) {
      const sinkReport = (await status.sinks()).find(({ sink }) => sink === name);
      return sinkReport === undefined ? null : sinkResponse(sinkReport, store.outbox, plots, clock.now());
    },
    source: async (name: string) => sourceResponse(plots, clock.now(), name, live.allowedRequestsPerMinute(name)),
    async plot(query: PlotQuery) {
      const row = await tags.findRow(query.source, query.tag);
      return row === null ? null : plotResponse(context, fetchedHistory, row, query);
    },
    stop: fetchedHistory.stop,
  };
}

export function pageResponseRoutes(responses: PageApi, status: Pick<Status, "alarms" | "silences">): Hono {
  const app = new Hono();

  function addGetRoute<T extends object>(
    path: string,
    schema: z.ZodType<T>,
    respond: (query: T, context: Context) => Promise<unknown>,
  ): void {
    app.get(path, async (context) => {
      const queryParameters = context.req.query();
      const query = schema.safeParse(queryParameters);
      const { data } = query;
      const source = path === "/source" ? queryParameters.name : data && "source" in data && data.source;
      if (typeof source === "string" && !responses.sources.includes(source))
        return respondUnknownSource(context, responses, source);
      if (!query.success) return context.json({ message: query.error.issues[0]?.message ?? "" }, 400);
      const response = await respond(query.data, context);
      return response === null
        ? context.json({ message: "This object does not exist (any more)." }, 404)
        : context.json(response);
    });
  }
  addGetRoute("/alarms", queries.AlarmsQuery, async (query) => filterAlarmRows(await status.alarms(), query));
  addGetRoute("/silences", queries.ScopeQuery, status.silences);
  addGetRoute("/tags", queries.TagsQuery, responses.tags);
  addGetRoute("/tag", queries.TagQuery, async ({ id, source }, context) => {
    const tag = await responses.tag(source, id);
    const closed = refusalForPost(roleOfRequest(context), "/api/write");
    return tag?.writable == null || closed === null ? tag : { ...tag, writable: { ...tag.writable, closed } };
  });
  addGetRoute("/alarm", queries.AlarmQuery, responses.alarm);
  addGetRoute("/site", queries.SiteQuery, ({ id, source }) => responses.site(source, id));
  // A viewer must not cause requests that use the quota of the service.
  addGetRoute("/plot", queries.PlotQuery, (query, context) =>
    responses.plot({ ...query, fetch: query.fetch && roleOfRequest(context) !== "viewer" }),
  );
  addGetRoute("/sink", queries.NameQuery, ({ name }) => responses.sink(name));
  addGetRoute("/source", queries.NameQuery, ({ name }) => responses.source(name));
  addGetRoute("/alarm-days", queries.ScopeQuery, responses.alarmDays);
  addGetRoute("/commands", queries.CommandsQuery, responses.commands);
  return app;
}

async function respondUnknownSource(context: Context, responses: Pick<PageApi, "holderOf">, source: string) {
  return context.json((await responses.holderOf?.(source)) ?? { message: "There is no such source." }, 404);
}

export interface PageActionRouteOptions {
  readonly config: Pick<StatusConfig, "trusted_proxy">;
  readonly pageApi: Pick<PageApi, "commands" | "holderOf" | "sinkNames" | "sources">;
  readonly outbox: Pick<Outbox, "resendDeadLetters">;
  readonly actions: PageActions;
  readonly log: Pick<Log, "info">;
}

export interface PageActions {
  /** Resolves when the write is in the journal of commands, or rejected and recorded. */
  write(request: TagWriteRequest): Promise<void>;
  notReadyReason(): string | null;
}

export interface TagWriteRequest {
  readonly id: string;
  readonly source: string;
  readonly tagId: string;
  readonly value: TagScalar;
  /** Writes only if the tag still has this value; null allows any value. */
  readonly expect: TagScalar | null;
  readonly user: string | null;
}

const MAX_REQUEST_BYTES = 16 * 1024;
const MAX_RESENT_EVENTS = 1_000;
const TagScalarSchema = z.union([z.number(), z.boolean()], { error: "A value is a number, true or false." });
const TagWriteBody = z.strictObject({
  source: queries.requiredText("source", 200),
  tag: queries.requiredText("tag", 200),
  value: TagScalarSchema,
  expect: TagScalarSchema.optional(),
});
const DeadLetterRetryBody = z.strictObject({
  name: queries.requiredText("name"),
  ids: z
    .array(z.string().regex(/^\d{1,15}$/, "An id is the number of a dead letter."), "ids is a list of numbers as text.")
    .max(MAX_RESENT_EVENTS, `Send ${MAX_RESENT_EVENTS} at once at most, or all by leaving ids out.`)
    .optional(),
});

/** States of commands whose result is not known yet, or that succeeded. */
const ACCEPTED_STATES: ReadonlySet<string> = new Set(["accepted", "sending", "confirmed", "accepted-unverified"]);
const MAX_LATEST_COMMANDS = 50;
const UNRECORDED_WRITE_MESSAGE =
  "Plenum rejected the command. It rejects so many commands now that it only counts them; the log says why.";

/** Routes for changes that an operator makes on the page. `guardPage` rejects all other visitors. */
export function pageActionRoutes({ actions, pageApi, config, log, outbox }: PageActionRouteOptions): Hono {
  const app = new Hono();
  function addPostRoute<T>(
    path: string,
    schema: z.ZodType<T>,
    handleBody: (body: T, context: Context) => Promise<Response>,
  ): void {
    app.post(path, acceptJsonFromOwnPage(MAX_REQUEST_BYTES, "The request is too long."), async (context) => {
      const body = schema.safeParse(await context.req.json().catch(() => null));
      return body.success
        ? handleBody(body.data, context)
        : context.json({ message: validationMessage(body.error) }, 400);
    });
  }

  /** Body {source, tag, value, expect?}: checked as in `plenum write`. Response {id}, or {message} with status 4xx. */
  addPostRoute("/write", TagWriteBody, async ({ expect = null, source, tag: tagId, value }, context) => {
    if (!pageApi.sources.includes(source)) return respondUnknownSource(context, pageApi, source);
    const notReadyReason = actions.notReadyReason();
    if (notReadyReason !== null) return context.json({ message: notReadyReason }, 503);
    const id = `page-${randomUUID()}`;
    await actions.write({ id, source, tagId, value, expect, user: proxyUserName(context, config) });
    const commandRows = await pageApi.commands({ source, tag: tagId, limit: MAX_LATEST_COMMANDS });
    const row = commandRows.find((command) => command.id === id);
    if (row !== undefined && ACCEPTED_STATES.has(row.state)) return context.json({ id }, 202);
    return context.json({ id, message: row?.words ?? UNRECORDED_WRITE_MESSAGE }, 409);
  });

  /** Body {name, ids?: string[]}: sends dead letters of a sink again. Response {again: number}. */
  addPostRoute("/sink/retry", DeadLetterRetryBody, async ({ ids, name }, context) => {
    if (!(await pageApi.sinkNames()).includes(name)) return context.json({ message: "There is no such sink." }, 404);
    const resentCount = await outbox.resendDeadLetters(name, ids?.map(Number) ?? "all");
    log.info({ sink: name, count: resentCount, by: visitorName(context, config) }, "dead letters are sent again");
    return context.json({ again: resentCount });
  });
  return app;
}

function validationMessage({ issues: [issue] }: z.ZodError): string {
  if (issue?.code === "unrecognized_keys") return "The request has an unknown field.";
  return issue === undefined || issue.path.length === 0 ? "Send one JSON object." : issue.message;
}
