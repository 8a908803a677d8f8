import { forbiddenReply } from "../envelope.ts";
import type { SimReply } from "../exchange.ts";
import { gatewayRecord, hostRecord, siteRecord, systemRecord, tagRecord } from "../records.ts";
import { maySeeSite } from "../tokens.ts";
import type { Call, Endpoint } from "./endpoint.ts";
import { contains, type Page, pageOf, readPage } from "./pages.ts";

export const sites: Endpoint = {
  name: "sites",
  method: "GET",
  path: "/api/v1/sites",
  scoped: true,
  limited: false,
  answer(call) {
    const { world, inventory } = call.scene;
    const search = call.query.text("search");
    const page = listPage(call);
    const rows = () =>
      [...world.sites.values()]
        .filter((site) => inventory.exists("sites", site.id) && maySeeSite(call.token, site.id))
        .map((site) => siteRecord(call.scene, site))
        .filter((site) => contains(search, site.display_name));
    return pageOf(call, page, rows, (site) => site);
  },
};

export const tags: Endpoint = {
  name: "tags",
  method: "GET",
  path: "/api/v1/tags",
  ability: "read:tags",
  scoped: true,
  limited: false,
  answer: (call) =>
    siteList(call, (siteId, page) => {
      const { world, inventory } = call.scene;
      const systemId = call.query.integer("system_id");
      const search = call.query.text("search");
      const rows = () =>
        [...world.tags.values()].filter((tag) => {
          if (tag.site.id !== siteId || !inventory.exists("tags", tag.id)) return false;
          if (systemId !== undefined && tag.systemId !== systemId) return false;
          if (call.token.visibleTags?.has(tag.id) === false) return false;
          if (search === undefined) return true;
          const { display_name, description, unit } = tagRecord(call.scene, tag).attributes;
          const host = world.hosts.get(tag.hostId);
          return contains(
            search,
            display_name,
            description,
            unit,
            host?.display_name ?? null,
            host?.type ?? null,
          );
        });
      return pageOf(call, page, rows, (tag) => tagRecord(call.scene, tag));
    }),
};

export const gateways: Endpoint = {
  name: "gateways",
  method: "GET",
  path: "/api/v1/gateways",
  ability: "read:gateways",
  permission: "gateways",
  scoped: true,
  limited: false,
  answer: (call) =>
    siteList(call, (siteId, page) => {
      const search = call.query.text("search");
      const rows = () =>
        [...call.scene.world.gateways.values()]
          .filter(
            (gateway) => gateway.site_id === siteId && call.scene.inventory.exists("gateways", gateway.id),
          )
          .map((gateway) => gatewayRecord(call.scene, gateway, call.nowMs))
          .filter((gateway) => contains(search, gateway.attributes.display_name));
      return pageOf(call, page, rows, (gateway) => gateway);
    }),
};

export const hosts: Endpoint = {
  name: "hosts",
  method: "GET",
  path: "/api/v1/hosts",
  ability: "read:hosts",
  permission: "hosts",
  scoped: true,
  limited: false,
  answer: (call) =>
    siteList(call, (siteId, page) => {
      const gatewayId = call.query.integer("gateway_id");
      const search = call.query.text("search");
      const rows = () =>
        [...call.scene.world.hosts.values()]
          .filter((host) => host.site_id === siteId && call.scene.inventory.exists("hosts", host.id))
          .filter((host) => gatewayId === undefined || host.gateway_id === gatewayId)
          .map((host) => hostRecord(call.scene, host))
          .filter((host) => contains(search, host.attributes.display_name));
      return pageOf(call, page, rows, (host) => host);
    }),
};

export const systems: Endpoint = {
  name: "systems",
  method: "GET",
  path: "/api/v1/systems",
  ability: "read:systems",
  permission: "documents",
  scoped: true,
  limited: false,
  answer: (call) =>
    siteList(call, (siteId, page) => {
      const search = call.query.text("search");
      const rows = () =>
        [...call.scene.world.systems.values()]
          .filter((system) => system.site_id === siteId && call.scene.inventory.exists("systems", system.id))
          .map((system) => systemRecord(call.scene, system))
          .filter(({ attributes }) => contains(search, attributes.code, attributes.display_name));
      return pageOf(call, page, rows, (system) => system);
    }),
};

function listPage(call: Call): Page {
  const { max_per_page, over_max } = call.scene.options.lists;
  return readPage(call, { max: max_per_page, overMax: over_max });
}

/** The lists of one site: site_id is required, must exist, and must lie in the token's scope. */
function siteList(call: Call, answer: (siteId: number, page: Page) => SimReply): SimReply {
  const { world, inventory, options } = call.scene;
  const asked = call.query.required("site_id");
  const siteId = asked === undefined ? undefined : call.query.integer("site_id");
  const exists = siteId !== undefined && world.sites.has(siteId) && inventory.exists("sites", siteId);
  if (siteId !== undefined && !exists) call.query.refuse("site_id", "The selected site id is invalid.");
  const page = listPage(call);
  if (exists && call.query.problems.length === 0 && !maySeeSite(call.token, siteId))
    return forbiddenReply(options.forbidden);
  return answer(siteId ?? 0, page);
}
