import { TOKEN_ABILITIES } from "#src/simulator/options.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import type { LossWorld } from "./building.ts";

export interface Rights {
  readonly sites: readonly number[];
  readonly abilities: readonly string[];
  readonly permissions: readonly ("gateways" | "hosts" | "documents")[];
  readonly visibleTags: readonly string[] | null;
  readonly revoked: boolean;
}

/** Work that a fault affects; everything else must continue as without the fault. */
export type AffectedWork =
  | { readonly kind: "site"; readonly siteId: number }
  | { readonly kind: "history" | "lists" | "all" }
  | { readonly kind: "tags"; readonly ids: ReadonlySet<string> };

export interface SourceFault {
  readonly name: string;
  readonly concerns: AffectedWork;
  readonly rights?: (rights: Rights) => Rights;
  readonly rules?: readonly object[];
  readonly offlineGateways?: readonly number[];
  readonly removedTags?: readonly string[];
  /** Endpoints that answer nothing but errors as long as it lasts. */
  readonly dead?: readonly ("read" | "history")[];
  /** Tags that the service rejects individually, so their quarantine is right. */
  readonly refusesTags?: ReadonlySet<string>;
  /** After five minutes the rejected token is tried every eight minutes only. */
  readonly refusesToken?: boolean;
  readonly isMaintenance?: boolean;
  /** The service seems unavailable, so nothing counts as rejected. */
  readonly looksLikeOutage?: boolean;
  readonly hidesTags?: ReadonlySet<string>;
}

export const ALL_RIGHTS = (world: LossWorld): Rights => ({
  sites: world.siteIds,
  abilities: [...TOKEN_ABILITIES],
  permissions: ["gateways", "hosts", "documents"],
  visibleTags: null,
  revoked: false,
});

type CreateFault = (world: LossWorld, random: SeededRandom) => SourceFault;

const HISTORY = { kind: "history" } as const;
const LISTS = { kind: "lists" } as const;
const ALL = { kind: "all" } as const;

const withoutItems = <T>(list: readonly T[], ...gone: readonly T[]) => list.filter((each) => !gone.includes(each));
const siteTags = (world: LossWorld, siteId: number) => new Set(world.tags.get(siteId) ?? []);
const allTags = (world: LossWorld) => [...world.tags.values()].flat();

function randomTags(world: LossWorld, random: SeededRandom): ReadonlySet<string> {
  const all = allTags(world);
  const tagCount = random.pick([1, 2, 5, Math.ceil(all.length / 2)]);
  return new Set(Array.from({ length: tagCount }, () => random.pick(all)));
}

const lostSite: CreateFault = (world, random) => {
  const siteId = random.pick(world.siteIds);
  return {
    name: `site ${siteId} leaves the scope`,
    concerns: { kind: "site", siteId },
    rights: (rights) => ({ ...rights, sites: withoutItems(rights.sites, siteId) }),
    hidesTags: siteTags(world, siteId),
  };
};

const noSites: CreateFault = (world) => ({
  name: "the token is scoped to nothing",
  concerns: ALL,
  rights: (rights) => ({ ...rights, sites: [] }),
  hidesTags: new Set(allTags(world)),
});

const readAbility: CreateFault = (world) => ({
  name: "read:tags is taken away",
  concerns: ALL,
  rights: (rights) => ({ ...rights, abilities: withoutItems(rights.abilities, "read:tags") }),
  hidesTags: new Set(allTags(world)),
  dead: ["read", "history"],
});

const otherAbility: CreateFault = (_world, random) => {
  const ability = random.pick(["read:alarms", "read:gateways", "read:hosts"]);
  return {
    name: `${ability} is taken away`,
    concerns: LISTS,
    rights: (rights) => ({ ...rights, abilities: withoutItems(rights.abilities, ability) }),
  };
};

const permission: CreateFault = (_world, random) => {
  const lostPermission = random.pick(["gateways", "hosts"] as const);
  return {
    name: `the user may not read ${lostPermission}`,
    concerns: LISTS,
    rights: (rights) => ({ ...rights, permissions: withoutItems(rights.permissions, lostPermission) }),
  };
};

const smallerViews: CreateFault = (world, random) => {
  const ids = randomTags(world, random);
  return {
    name: `the views show ${ids.size} tags less`,
    concerns: { kind: "tags", ids },
    rights: (rights) => ({
      ...rights,
      visibleTags: (rights.visibleTags ?? allTags(world)).filter((id) => !ids.has(id)),
    }),
    hidesTags: ids,
    refusesTags: ids,
  };
};

const revoked: CreateFault = () => ({
  name: "the token is revoked and renewed under the same text",
  concerns: ALL,
  rights: (rights) => ({ ...rights, revoked: true }),
  refusesToken: true,
});

const gateway: CreateFault = (world, random) => {
  const siteId = random.pick(world.siteIds);
  return {
    name: `the gateways of site ${siteId} are offline`,
    concerns: { kind: "site", siteId },
    offlineGateways: world.gateways.get(siteId) ?? [],
  };
};

const removed: CreateFault = (world, random) => {
  const ids = randomTags(world, random);
  return {
    name: `${ids.size} tags do not exist for a while`,
    concerns: { kind: "tags", ids },
    removedTags: [...ids],
    hidesTags: ids,
    refusesTags: ids,
  };
};

const shortenedLists: CreateFault = (world, random) => ({
  name: "the list of tags drops at once",
  concerns: ALL,
  rules: [{ match: { endpoints: ["tags"] }, fault: { kind: "shrunken_list", keep: random.pick([0, 0.3]) } }],
  hidesTags: new Set(allTags(world)),
});

const siteForbidden: CreateFault = (world, random) => {
  const siteId = random.pick(world.siteIds);
  const fault = { kind: "error", status: 403, real_status: random.chance(0.5) };
  return {
    name: `403 for the tags of site ${siteId}, though the token sees it`,
    concerns: { kind: "site", siteId },
    rules: [{ match: { endpoints: ["read", "history"], site_id: siteId }, fault }],
    refusesTags: siteTags(world, siteId),
  };
};

const tagRefused: CreateFault = (world, random) => {
  const id = random.pick(allTags(world));
  const status = random.pick([403, 404, 422, 500]);
  return {
    name: `tag ${id} is answered with ${status}`,
    concerns: { kind: "tags", ids: new Set([id]) },
    rules: [{ match: { endpoints: ["read", "history"], tag_id: id }, fault: { kind: "error", status } }],
    refusesTags: new Set([id]),
  };
};

const ENDPOINT_FAULTS: readonly (readonly [string, object])[] = [
  ["500", { kind: "error", status: 500 }],
  ["a real 500", { kind: "error", status: 500, real_status: true }],
  ["504", { kind: "error", status: 504 }],
  ["403", { kind: "error", status: 403 }],
  ["a real 403", { kind: "error", status: 403, real_status: true }],
  ["a 403 page", { kind: "html", status: 403, title: "Forbidden" }],
  ["422", { kind: "error", status: 422 }],
  ["a log-in page", { kind: "html", status: 200 }],
  ["a proxy's 502 page", { kind: "html", status: 502, title: "Bad Gateway" }],
  ["a missing route", { kind: "missing_route", body: "json" }],
  ["a missing route as a page", { kind: "missing_route", body: "html" }],
  ["a broken body", { kind: "malformed" }],
  ["resets", { kind: "reset" }],
  ["cut bodies", { kind: "cut", after_bytes: 60 }],
  ["no answer for long", { kind: "slow", delay_ms: 40_000 }],
];

const isRefusal = (name: string) => /403|422|missing/.test(name);

function failingEndpoints(endpoints: readonly ("read" | "history")[], concerns: AffectedWork): CreateFault {
  return (world, random) => {
    const [name, fault] = random.pick(ENDPOINT_FAULTS);
    const refuses = endpoints.includes("read") && isRefusal(name);
    const partly = random.chance(0.25);
    const when = partly ? { probability: 0.5 } : {};
    return {
      name: `${endpoints.join(" and ")}: ${name}${partly ? ", half of the time" : ""}`,
      concerns,
      rules: [{ match: { endpoints }, when, fault }],
      ...(partly ? {} : { dead: endpoints }),
      ...(isRefusal(name) ? {} : { looksLikeOutage: true }),
      // A tag that is rejected alone, although the token permits it, may be quarantined.
      ...(refuses ? { refusesTags: new Set(allTags(world)) } : {}),
    };
  };
}

const listsFail: CreateFault = (world, random) => {
  const endpoints = random.pick([["tags"], ["sites"], ["gateways", "hosts"], ["alarms"], ["me"]]);
  const [name, fault] = random.pick(ENDPOINT_FAULTS.filter(([each]) => !each.includes("long")));
  return {
    name: `lists ${endpoints.join(" and ")}: ${name}`,
    concerns: endpoints.some((each) => each === "me" || each === "sites" || each === "tags") ? ALL : LISTS,
    rules: [{ match: { endpoints }, fault }],
    ...(endpoints.includes("me") || !isRefusal(name) ? { looksLikeOutage: true } : {}),
    ...(endpoints.includes("tags") ? { hidesTags: new Set(allTags(world)) } : {}),
  };
};

const maintenance: CreateFault = (_world, random) => {
  const body = random.pick(["json", "html", "empty"]);
  const statedWait = random.chance(0.5) ? { retry_after: 20 + random.below(100) } : {};
  return {
    name: `503 ${"retry_after" in statedWait ? "with" : "without"} Retry-After`,
    isMaintenance: true,
    concerns: ALL,
    rules: [{ fault: { kind: "maintenance", body, ...statedWait } }],
    dead: ["read", "history"],
    looksLikeOutage: true,
  };
};

const throttled: CreateFault = (_world, random) => ({
  name: "429 from somebody else's limit",
  concerns: ALL,
  rules: [
    {
      match: { endpoints: random.pick([["read"], ["history"], ["read", "history"]]) },
      when: { count: 1 + random.below(3) },
      fault: { kind: "throttled", retry_after_s: 1 + random.below(50) },
    },
  ],
});

/** Faults of one site, of history or of lists, which other work must not notice. */
const ISOLATED_FAULTS: readonly CreateFault[] = [
  lostSite,
  lostSite,
  gateway,
  otherAbility,
  permission,
  siteForbidden,
  failingEndpoints(["history"], HISTORY),
  failingEndpoints(["history"], HISTORY),
];

const ALL_FAULTS: readonly CreateFault[] = [
  ...ISOLATED_FAULTS,
  noSites,
  readAbility,
  readAbility,
  smallerViews,
  revoked,
  removed,
  shortenedLists,
  tagRefused,
  failingEndpoints(["read"], ALL),
  failingEndpoints(["read", "history"], ALL),
  listsFail,
  maintenance,
  throttled,
];

export const isolatedFault: CreateFault = (world, random) => random.pick(ISOLATED_FAULTS)(world, random);

export const anyFault: CreateFault = (world, random) => random.pick(ALL_FAULTS)(world, random);
