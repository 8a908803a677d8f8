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
import { forbiddenReply, invalidFieldsReply, jsonReply, type ServiceReply } from "../reply-bodies.ts";
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
  { page, perPage }: ListPage,
  listRows: () => readonly Row[],
  toRecord: (row: Row) => unknown = (row) => row,
): ServiceReply {
  if (query.invalidFields.length > 0) return invalidFieldsReply(query.invalidFields);
  const { lists, public_url } = context.options;
  const publicOrigin = public_url ?? `http://${request.headers.host ?? "localhost"}`;
  const listUrl = `${publicOrigin.replace(/\/$/, "")}${request.path}`;
  const buildPageLink = (pageNumber: number) => {
    const linkParameters = new URLSearchParams(lists.links === "keep" ? request.query : undefined);
    linkParameters.set("page", String(pageNumber));
    return `${listUrl}?${linkParameters.toString()}`;
  };
  const rows = listRows();
  const lastPageNumber = Math.max(1, Math.ceil(rows.length / perPage));
  const firstRowIndex = (page - 1) * perPage;
  const data = rows.slice(firstRowIndex, firstRowIndex + perPage).map(toRecord);
  const emptyPagePosition = lists.empty_meta === "zero" ? 0 : null;
  return jsonReply(200, {
    data,
    links: {
      first: buildPageLink(1),
      last: buildPageLink(lastPageNumber),
      prev: page > 1 ? buildPageLink(page - 1) : null,
      next: page < lastPageNumber ? buildPageLink(page + 1) : null,
    },
    meta: {
      current_page: page,
      from: data.length === 0 ? emptyPagePosition : firstRowIndex + 1,
      last_page: lastPageNumber,
      path: listUrl,
      per_page: perPage,
      to: data.length === 0 ? emptyPagePosition : firstRowIndex + data.length,
      total: rows.length,
    },
  });
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
    return buildPageReply(call, readSiteListParameters(call), listRows);
  },
};

export function listVisibleSites({ context, token }: ApiCall) {
  return [...context.world.sites.values()]
    .filter((site) => context.inventory.exists("sites", site.id) && tokenSeesSite(token, site.id))
    .map((site) => buildSiteRecord(context, site));
}

interface SiteListFilters {
  readonly isListed: (object: { readonly id: string | number; readonly site_id: number }) => boolean;
  readonly matchesSearch: (...texts: readonly (string | null)[]) => boolean;
}

/** Makes an endpoint that lists objects of one site, e.g. tags; the parameter site_id is required. */
function createSiteListEndpoint(
  name: "tags" | "gateways" | "hosts" | "systems",
  permission: Endpoint["permission"] | undefined,
  readFilters: (call: ApiCall, filters: SiteListFilters) => () => readonly unknown[],
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
      const listRecords = readFilters(call, {
        isListed: ({ id, site_id }) => site_id === siteId && context.inventory.exists(name, id),
        matchesSearch: (...texts) => containsText(query.readText("search"), ...texts),
      });
      return buildPageReply(call, page, listRecords);
    },
  };
}

export const tags = createSiteListEndpoint("tags", undefined, ({ context, query, token }, filters) => {
  const systemId = query.readInteger("system_id");
  return () =>
    [...context.world.tags.values()].flatMap((tag) => {
      if (!filters.isListed({ id: tag.id, site_id: tag.site.id })) return [];
      if (systemId !== undefined && tag.systemId !== systemId) return [];
      if (token.visibleTags?.has(tag.id) === false) return [];
      const record = buildTagRecord(context, tag);
      const { display_name, description, unit } = record.attributes;
      const host = context.world.hosts.get(tag.hostId);
      const texts = [display_name, description, unit, host?.display_name ?? "", host?.type ?? ""];
      return filters.matchesSearch(...texts) ? [record] : [];
    });
});

export const gateways = createSiteListEndpoint("gateways", "gateways", ({ context, nowMs }, filters) => () => {
  const listedGateways = [...context.world.gateways.values()].filter(filters.isListed);
  const records = listedGateways.map((gateway) => buildGatewayRecord(context, gateway, nowMs));
  return records.filter(({ attributes }) => filters.matchesSearch(attributes.display_name));
});

export const hosts = createSiteListEndpoint("hosts", "hosts", ({ context, query }, filters) => {
  const gatewayId = query.readInteger("gateway_id");
  return () =>
    [...context.world.hosts.values()]
      .filter((host) => filters.isListed(host) && (gatewayId === undefined || host.gateway_id === gatewayId))
      .map((host) => buildHostRecord(context, host))
      .filter(({ attributes }) => filters.matchesSearch(attributes.display_name));
});

export const systems = createSiteListEndpoint("systems", "documents", ({ context }, filters) => () => {
  const listedSystems = [...context.world.systems.values()].filter(filters.isListed);
  const records = listedSystems.map((system) => buildSystemRecord(context, system));
  return records.filter(({ attributes }) => filters.matchesSearch(attributes.code, attributes.display_name));
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
