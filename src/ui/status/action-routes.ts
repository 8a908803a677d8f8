import { randomUUID } from "node:crypto";
import { Hono } from "hono";
import { z } from "zod";
import type { TagScalar } from "../../core/model/building.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Outbox } from "../../engine/store/store.ts";
import type { StatusConfig } from "./config.ts";
import { sameOriginOnly } from "./guard.ts";
import { bodyOf, jsonUpTo } from "./posted.ts";
import type { Responses } from "./response-builders.ts";
import { notHere } from "./response-routes.ts";
import { namedIn, personIn } from "./visitor.ts";

/** Changes that an operator makes from the page. The guard refuses everybody else. */
export interface ActionRoutes {
  readonly config: Pick<StatusConfig, "trusted_proxy">;
  readonly answers: Pick<Responses, "commands" | "elsewhere" | "sinkNames" | "sources">;
  readonly outbox: Pick<Outbox, "resendDeadLetters">;
  readonly actions: Actions;
  readonly log: Pick<Log, "info">;
}

export interface Actions {
  /** Hands a write to the gate; resolves when it is journaled, or refused and recorded. */
  write(wish: WriteWish): Promise<void>;
  /** Why nothing can be done yet, or any more; null while the worker is ready. */
  notReady(): string | null;
}

export interface WriteWish {
  readonly id: string;
  readonly source: string;
  readonly tagId: string;
  readonly value: TagScalar;
  /** Written only if the tag still holds this; null for whatever it holds. */
  readonly expect: TagScalar | null;
  /** The name of the person, where the proxy in front says it. */
  readonly user: string | null;
}

/** A thousand dead letters by number, or a command, need no more, in bytes. */
const LARGEST_BODY = 16 * 1024;
const RETRIED_AT_ONCE = 1_000;

const Scalar = z.union([z.number(), z.boolean()], { error: "A value is a number, true or false." });
const Write = z.strictObject({
  source: z.string({ error: "Say source." }).min(1, "Say source.").max(200, "There is no such source."),
  tag: z.string({ error: "Say tag." }).min(1, "Say tag.").max(200, "There is no such tag."),
  value: Scalar,
  expect: Scalar.optional(),
});
const Retry = z.strictObject({
  name: z.string({ error: "Say name." }).min(1, "Say name."),
  ids: z
    .array(z.string().regex(/^\d{1,15}$/, "An id is the number of a dead letter."), {
      error: "ids is a list of numbers as text.",
    })
    .max(RETRIED_AT_ONCE, `Send ${RETRIED_AT_ONCE} at once at most, or all by leaving ids out.`)
    .optional(),
});

/** States of a command that was accepted: it waits, or its result is not known yet. */
const LET_THROUGH: ReadonlySet<string> = new Set(["accepted", "sending", "confirmed", "accepted-unverified"]);

export function actionRoutes({ actions, answers, config, log, outbox }: ActionRoutes): Hono {
  const app = new Hono();
  const json = jsonUpTo(LARGEST_BODY, "That is too long.");

  app.post("/write", sameOriginOnly, json, async (context) => {
    const asked = Write.safeParse(await bodyOf(context));
    if (!asked.success) return context.json({ message: complaint(asked.error) }, 400);
    const { expect = null, source, tag: tagId, value } = asked.data;
    if (!answers.sources.includes(source)) return notHere(context, answers, source);
    const reason = actions.notReady();
    if (reason !== null) return context.json({ message: reason }, 503);
    const id = `page-${randomUUID()}`;
    const user = personIn(context, config.trusted_proxy);
    await actions.write({ id, source, tagId, value, expect, user });
    const rows = await answers.commands({ source, tag: tagId, limit: JUST_NOW });
    const row = rows.find((each) => each.id === id);
    if (row !== undefined && LET_THROUGH.has(row.state)) return context.json({ id }, 202);
    return context.json({ id, message: row?.words ?? UNRECORDED }, 409);
  });

  app.post("/sink/retry", sameOriginOnly, json, async (context) => {
    const asked = Retry.safeParse(await bodyOf(context));
    if (!asked.success) return context.json({ message: complaint(asked.error) }, 400);
    const { ids, name } = asked.data;
    if (!(await answers.sinkNames()).includes(name)) return context.json({ message: "There is no such sink." }, 404);
    const again = await outbox.resendDeadLetters(name, ids?.map(Number) ?? "all");
    log.info({ sink: name, count: again, by: namedIn(context, config.trusted_proxy) }, "dead letters are sent again");
    return context.json({ again });
  });
  return app;
}

/** Commands to one tag between a write and the look at what became of it. */
const JUST_NOW = 50;
const UNRECORDED = "It was refused, as so many are at the moment that only their number is recorded; the log says why.";

function complaint({ issues: [issue] }: z.ZodError): string {
  if (issue?.code === "unrecognized_keys") return "That has a field that is not known here.";
  return issue === undefined || issue.path.length === 0 ? "Send one JSON object." : issue.message;
}
