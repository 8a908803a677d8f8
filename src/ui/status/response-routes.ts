import { type Context, Hono } from "hono";
import { z } from "zod";
import { alarmList } from "./alarm-list.ts";
import { roleIn, writesClosedTo } from "./guard.ts";
import { SPANS } from "./plot-answer.ts";
import type { Status } from "./report.ts";
import type { Responses } from "./response-builders.ts";
import { SHOWS, SORTS } from "./tag-index.ts";

/** The routes that answer for one view of the page each; the shapes are in `answers.ts`. */

const LIMIT_MAX = 200;
/** Most alarms in a response; filters narrow them down. */
const ALARMS_MAX = 1_000;
const OFFSET_MAX = 1_000_000;

const text = (name: string, max = 300) =>
  z
    .string({ error: `Say ${name}.` })
    .min(1, `Say ${name}.`)
    .max(max, `There is no such ${name}.`);
const whole = (name: string, least: number, most: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, `${name} is a whole number.`)
    .transform(Number)
    .refine((number) => number >= least && number <= most, `${name} is a number from ${least} to ${most}.`);

const source = text("source");
const site = whole("site", 0, Number.MAX_SAFE_INTEGER);
const limit = whole("limit", 1, LIMIT_MAX);

const Tags = asking({
  source: source.optional(),
  site: site.optional(),
  search: z.string().max(200, "Search for 200 characters at most.").optional(),
  show: z.enum(SHOWS, { error: `show is one of: ${SHOWS.join(", ")}.` }).default("all"),
  sort: z.enum(SORTS, { error: `sort is one of: ${SORTS.join(", ")}.` }).default("name"),
  offset: whole("offset", 0, OFFSET_MAX).default(0),
  limit: limit.default(100),
});
const OneTag = asking({ source, id: text("id") });
const OneAlarm = asking({ source, id: text("id"), episode: text("episode").optional() });
const OneSite = asking({ source, id: site });
const Plot = asking({
  source,
  tag: text("tag"),
  span: z.enum(SPANS, { error: `span is one of: ${SPANS.join(", ")}.` }),
  fetch: z
    .literal("1", { error: "fetch is 1, or left out." })
    .optional()
    .transform((word) => word !== undefined),
});
const Alarms = asking({
  source: source.optional(),
  site: site.optional(),
  priority: text("priority").optional(),
  limit: whole("limit", 1, ALARMS_MAX).default(100),
});
const Named = asking({ name: text("name") });
const Days = asking({ source: source.optional(), site: site.optional() });
const Silences = asking({ source: source.optional(), site: site.optional() });
const Commands = asking({
  source: source.optional(),
  tag: text("tag").optional(),
  limit: limit.default(50),
});

export function responseRoutes(answers: Responses, status: Pick<Status, "alarms" | "silences">): Hono {
  const app = new Hono();

  app.get("/alarms", (context) =>
    answered(context, Alarms, answers, async (asked) => alarmList(await status.alarms(), asked)),
  );
  app.get("/silences", (context) => answered(context, Silences, answers, (asked) => status.silences(asked)));
  app.get("/tags", (context) => answered(context, Tags, answers, (asked) => answers.tags(asked)));
  app.get("/tag", (context) =>
    answered(context, OneTag, answers, async (asked) => {
      const tag = await answers.tag(asked.source, asked.id);
      const closed = writesClosedTo(roleIn(context));
      if (tag === null || tag.writable === null || closed === null) return tag;
      return { ...tag, writable: { ...tag.writable, closed } };
    }),
  );
  app.get("/alarm", (context) => answered(context, OneAlarm, answers, (asked) => answers.alarm(asked)));
  app.get("/site", (context) => answered(context, OneSite, answers, (asked) => answers.site(asked.source, asked.id)));
  app.get("/plot", (context) =>
    answered(context, Plot, answers, (asked) =>
      // A viewer looks, and does not spend the quota.
      answers.plot({ ...asked, fetch: asked.fetch && roleIn(context) !== "viewer" }),
    ),
  );
  app.get("/sink", (context) => answered(context, Named, answers, ({ name }) => answers.sink(name)));
  app.get("/source", (context) => {
    const name = context.req.query("name");
    if (name !== undefined && !answers.sources.includes(name)) return notHere(context, answers, name);
    return answered(context, Named, answers, (asked) => answers.source(asked.name));
  });
  app.get("/alarm-days", (context) => answered(context, Days, answers, (asked) => answers.alarmDays(asked)));
  app.get("/commands", (context) => answered(context, Commands, answers, (asked) => answers.commands(asked)));
  return app;
}

/** Parameters of a request; an unknown parameter is rejected. */
function asking<S extends z.ZodRawShape>(shape: S) {
  return z.strictObject(shape, {
    error: (issue) =>
      issue.code === "unrecognized_keys"
        ? `There is no parameter ${(issue.keys as readonly string[]).join(", ")} here.`
        : undefined,
  });
}

/** 400 with a message for an invalid request, 404 for an unknown object. */
async function answered<T extends object>(
  context: Context,
  schema: z.ZodType<T>,
  answers: Pick<Responses, "sources" | "elsewhere">,
  answer: (asked: T) => Promise<unknown>,
): Promise<Response> {
  const asked = schema.safeParse(context.req.query());
  if (!asked.success) return context.json({ message: asked.error.issues[0]?.message ?? "" }, 400);
  const name = "source" in asked.data ? asked.data.source : undefined;
  if (typeof name === "string" && !answers.sources.includes(name)) return notHere(context, answers, name);
  const found = await answer(asked.data);
  return found === null ? context.json({ message: "Nobody knows this here (any more)." }, 404) : context.json(found);
}

/** 404, with the member that has it where there is a fleet. */
export async function notHere(
  context: Context,
  answers: Pick<Responses, "elsewhere">,
  source: string,
): Promise<Response> {
  const elsewhere = await answers.elsewhere?.(source);
  return context.json(elsewhere ?? { message: "There is no such source." }, 404);
}
