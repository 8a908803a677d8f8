import { tokenSeesSite } from "../access-tokens.ts";
import type { Alarm } from "../alarms.ts";
import {
  buildAlarmRecord,
  buildGatewayRecord,
  buildHostRecord,
  buildSiteRecord,
  buildSystemRecord,
  buildTagRecord,
  buildTriggerRecord,
} from "../build-response-records.ts";
import { forbiddenReply, invalidFieldsReply, listPageReply, type ServiceReply } from "../reply-bodies.ts";
import type { Tag } from "../simulated-sites.ts";
import type { ApiCall, Endpoint } from "./endpoint.ts";

const DEFAULT_PAGE_SIZE = 100;
const MAX_ALARMS_PER_PAGE = 500;
const MAX_SEARCH_TEXT_LENGTH = 255;

interface ListPage {
  readonly page: number;
  readonly perPage: number;
}

/** Reads the parameters page and per_page. An invalid page number counts as 1. */
function readPageParameters({ query, request }: ApiCall, maxSize: number, ifLarger: "refuse" | "clamp"): ListPage {
  const requestedPageSize = query.readInteger("per_page") ?? DEFAULT_PAGE_SIZE;
  if (requestedPageSize < 1) query.rejectField("per_page", "The per page field must be at least 1.");
  if (requestedPageSize > maxSize && ifLarger === "refuse")
    query.rejectField("per_page", `The per page field must not be greater than ${maxSize}.`);
  const page = Number(request.query.get("page") ?? "1");
  return { page: Number.isSafeInteger(page) && page > 0 ? page : 1, perPage: Math.min(requestedPageSize, maxSize) };
}

function readSiteListParameters(call: ApiCall): ListPage {
  const { max_per_page, over_max } = call.context.options.lists;
  return readPageParameters(call, max_per_page, over_max);
}

function buildPageReply<Row>(
  { context, query, request }: ApiCall,
  page: ListPage,
  rows: () => readonly Row[],
  toRecord: (row: Row) => unknown,
): ServiceReply {
  const { lists, public_url } = context.options;
  if (query.invalidFields.length > 0) return invalidFieldsReply(query.invalidFields);
  const publicOrigin = public_url ?? `http://${request.headers.host ?? "localhost"}`;
  const listUrl = `${publicOrigin.replace(/\/$/, "")}${request.path}`;
  const { links, empty_meta: emptyMeta } = lists;
  return listPageReply(rows(), toRecord, { listAddress: listUrl, query: request.query, ...page, links, emptyMeta });
}

function containsText(searchText: string | undefined, ...texts: readonly (string | null)[]): boolean {
  if (searchText === undefined) return true;
  return texts.some((text) => text?.toLowerCase().includes(searchText.toLowerCase()) ?? false);
}

export const sites: Endpoint = {
  name: "sites",
  method: "GET",
  path: "/api/v1/sites",
  respond(call) {
    const searchText = call.query.readText("search");
    const listRows = () => listVisibleSites(call).filter(({ display_name }) => containsText(searchText, display_name));
    return buildPageReply(call, readSiteListParameters(call), listRows, (site) => site);
  },
};

export function listVisibleSites({ context, token }: ApiCall) {
  return [...context.world.sites.values()]
    .filter((site) => context.inventory.exists("sites", site.id) && tokenSeesSite(token, site.id))
    .map((site) => buildSiteRecord(context, site));
}

/** Makes an endpoint that lists objects of one site, e.g. tags; the parameter site_id is required. */
function createSiteListEndpoint<Row>(
  name: "tags" | "gateways" | "hosts" | "systems",
  permission: string | undefined,
  selectRows: (call: ApiCall, siteId: number) => { rows: () => readonly Row[]; toRecord: (row: Row) => unknown },
): Endpoint {
  return {
    name,
    method: "GET",
    path: `/api/v1/${name}`,
    ability: `read:${name}`,
    ...(permission === undefined ? {} : { permission }),
    respond(call) {
      const { context, query, token } = call;
      const siteId = query.requireText("site_id") === undefined ? undefined : query.readInteger("site_id");
      const siteExists =
        siteId !== undefined && context.world.sites.has(siteId) && context.inventory.exists("sites", siteId);
      if (siteId !== undefined && !siteExists) query.rejectField("site_id", "The selected site id is invalid.");
      const page = readSiteListParameters(call);
      if (siteExists && query.invalidFields.length === 0 && !tokenSeesSite(token, siteId))
        return forbiddenReply(context.options.forbidden);
      const { rows, toRecord } = selectRows(call, siteId ?? 0);
      return buildPageReply(call, page, rows, toRecord);
    },
  };
}

export const tags = createSiteListEndpoint<Tag>("tags", undefined, ({ context, query, token }, siteId) => {
  const { world, inventory } = context;
  const systemId = query.readInteger("system_id");
  const searchText = query.readText("search");
  return {
    toRecord: (tag) => buildTagRecord(context, tag),
    rows: () =>
      [...world.tags.values()].filter((tag) => {
        if (tag.site.id !== siteId || !inventory.exists("tags", tag.id)) return false;
        if (systemId !== undefined && tag.systemId !== systemId) return false;
        if (token.visibleTags?.has(tag.id) === false) return false;
        if (searchText === undefined) return true;
        const { display_name, description, unit } = buildTagRecord(context, tag).attributes;
        const host = world.hosts.get(tag.hostId);
        return containsText(searchText, display_name, description, unit, host?.display_name ?? "", host?.type ?? "");
      }),
  };
});

export const gateways = createSiteListEndpoint("gateways", "gateways", ({ context, query, nowMs }, siteId) => {
  const searchText = query.readText("search");
  return {
    toRecord: (gateway) => gateway,
    rows: () =>
      [...context.world.gateways.values()]
        .filter(({ id, site_id }) => site_id === siteId && context.inventory.exists("gateways", id))
        .map((gateway) => buildGatewayRecord(context, gateway, nowMs))
        .filter(({ attributes }) => containsText(searchText, attributes.display_name)),
  };
});

export const hosts = createSiteListEndpoint("hosts", "hosts", ({ context, query }, siteId) => {
  const gatewayId = query.readInteger("gateway_id");
  const searchText = query.readText("search");
  return {
    toRecord: (host) => host,
    rows: () =>
      [...context.world.hosts.values()]
        .filter(({ id, site_id }) => site_id === siteId && context.inventory.exists("hosts", id))
        .filter((host) => gatewayId === undefined || host.gateway_id === gatewayId)
        .map((host) => buildHostRecord(context, host))
        .filter(({ attributes }) => containsText(searchText, attributes.display_name)),
  };
});

export const systems = createSiteListEndpoint("systems", "documents", ({ context, query }, siteId) => {
  const searchText = query.readText("search");
  return {
    toRecord: (system) => system,
    rows: () =>
      [...context.world.systems.values()]
        .filter(({ id, site_id }) => site_id === siteId && context.inventory.exists("systems", id))
        .map((system) => buildSystemRecord(context, system))
        .filter(({ attributes }) => containsText(searchText, attributes.code, attributes.display_name)),
  };
});

export const alarms: Endpoint = {
  name: "alarms",
  method: "GET",
  path: "/api/v1/alarms",
  ability: "read:alarms",
  respond(call) {
    const { context, nowMs, query, token } = call;
    const { inventory, options, world } = context;
    const siteId = query.readInteger("site_id");
    const siteExists = siteId === undefined || (world.sites.has(siteId) && inventory.exists("sites", siteId));
    if (!siteExists) query.rejectField("site_id", "The selected site id is invalid.");
    const status = query.readChoice("status", ["active", "resolved", "all"]) ?? "active";
    const priority = query.readChoice("priority", ["A", "B", "C", "a", "b", "c"])?.toUpperCase();
    const acknowledgedFilter = query.readBoolean("acknowledged");
    const searchText = query.readText("search");
    if (searchText !== undefined && searchText.length > MAX_SEARCH_TEXT_LENGTH)
      query.rejectField("search", `The search field must not be greater than ${MAX_SEARCH_TEXT_LENGTH} characters.`);
    const page = readPageParameters(call, MAX_ALARMS_PER_PAGE, "refuse");

    const isSiteOutOfScope = siteId !== undefined && siteExists && !tokenSeesSite(token, siteId);
    if (query.invalidFields.length === 0 && isSiteOutOfScope && options.alarms.out_of_scope_site === "403")
      return forbiddenReply(options.forbidden);
    const alarmFilter = { ...(siteId === undefined ? {} : { siteId }), ...(status === "all" ? {} : { status }) };
    const listRows = () => {
      const matchingAlarms = context.alarms.list(nowMs, alarmFilter).filter((alarm) => {
        if (!tokenSeesSite(token, alarm.siteId) || !inventory.exists("sites", alarm.siteId)) return false;
        if (acknowledgedFilter !== undefined && acknowledgedFilter !== (alarm.acknowledged !== null)) return false;
        if (priority !== undefined && buildTriggerRecord(context, alarm.triggerId).priority !== priority) return false;
        return searchText === undefined || alarmMatchesSearch(call, alarm, searchText);
      });
      return sortAlarms(call, matchingAlarms);
    };
    return buildPageReply(call, page, listRows, (alarm) => buildAlarmRecord(context, alarm));
  },
};

function alarmMatchesSearch({ context }: ApiCall, alarm: Alarm, searchText: string): boolean {
  const { source, description, trigger, site } = buildAlarmRecord(context, alarm).attributes;
  return containsText(searchText, source, description, trigger.display_name, site.display_name);
}

function sortAlarms({ context }: ApiCall, matchingAlarms: Alarm[]): readonly Alarm[] {
  const { order } = context.options.alarms;
  if (order === "shuffled") return context.random.shuffled(matchingAlarms);
  if (order === "id") return matchingAlarms;
  return matchingAlarms.sort((a, b) => b.triggeredAtMs - a.triggeredAtMs || Number(b.id) - Number(a.id));
}
