import { z } from "zod";

/** Parameters of the GET requests of the page. An unknown parameter is rejected. */

function querySchema<S extends z.ZodRawShape>(shape: S) {
  return z.strictObject(shape, {
    error: (issue) =>
      issue.code === "unrecognized_keys"
        ? `There is no parameter ${(issue.keys as readonly string[]).join(", ")} here.`
        : undefined,
  });
}

export const requiredText = (name: string, max = 300) =>
  z
    .string({ error: `Say ${name}.` })
    .min(1, `Say ${name}.`)
    .max(max, `There is no such ${name}.`);
const wholeNumberText = (name: string, min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, `${name} is a whole number.`)
    .transform(Number)
    .refine((number) => number >= min && number <= max, `${name} is a number from ${min} to ${max}.`);
const enumParameter = <const T extends readonly string[]>(name: string, allowedValues: T) =>
  z.enum(allowedValues, { error: `${name} is one of: ${allowedValues.join(", ")}.` });

const source = requiredText("source");
const site = wholeNumberText("site", 0, Number.MAX_SAFE_INTEGER);
const limit = wholeNumberText("limit", 1, 200);
const TAG_SORT_ORDERS = ["name", "-name", "value", "-value", "age", "-age", "site", "-site"] as const;
export const TagsQuery = querySchema({
  source: source.optional(),
  site: site.optional(),
  search: z.string().max(200, "Search for 200 characters at most.").optional(),
  show: enumParameter("show", ["all", "bad", "stale", "unread"]).default("all"),
  sort: enumParameter("sort", TAG_SORT_ORDERS).default("name"),
  offset: wholeNumberText("offset", 0, 1_000_000).default(0),
  limit: limit.default(100),
});
export type TagsQuery = z.output<typeof TagsQuery>;

export const TagQuery = querySchema({ source, id: requiredText("id") });

export const AlarmQuery = querySchema({ source, id: requiredText("id"), episode: requiredText("episode").optional() });
export type AlarmQuery = z.output<typeof AlarmQuery>;

export const AlarmsQuery = querySchema({
  source: source.optional(),
  site: site.optional(),
  priority: requiredText("priority").optional(),
  limit: wholeNumberText("limit", 1, 1_000).default(100),
});
export type AlarmsQuery = z.output<typeof AlarmsQuery>;

export const SiteQuery = querySchema({ source, id: site });
export const ScopeQuery = querySchema({ source: source.optional(), site: site.optional() });
export type ScopeQuery = z.output<typeof ScopeQuery>;

export const PlotQuery = querySchema({
  source,
  tag: requiredText("tag"),
  span: enumParameter("span", ["6h", "24h", "7d", "30d"]),
  /** True if the plot may request missing history from the service. */
  fetch: z
    .literal("1", { error: "fetch is 1, or left out." })
    .optional()
    .transform((word) => word !== undefined),
});
export type PlotQuery = z.output<typeof PlotQuery>;

export const NameQuery = querySchema({ name: requiredText("name") });
export const CommandsQuery = querySchema({
  source: source.optional(),
  tag: requiredText("tag").optional(),
  limit: limit.default(50),
});
export type CommandsQuery = z.output<typeof CommandsQuery>;
