import { Hono } from "hono";
import { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Site } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { oneAtATime } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { addSilence, LONGEST_REASON, silenceOf } from "../../engine/silence/silence.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { Listed, StoredAlarm } from "../../engine/sync/snapshot.ts";
import type { StatusConfig } from "./config.ts";
import { sameOriginOnly } from "./guard.ts";
import { bodyOf, jsonUpTo } from "./posted.ts";
import { isShown } from "./rows.ts";
import { namedIn } from "./visitor.ts";

export interface SilenceRoutes {
  readonly config: Pick<StatusConfig, "trusted_proxy">;
  readonly clock: Pick<Clock, "now">;
  /** Silences of a source; null for a source of another member. */
  readonly silencesOf: (source: string) => SilenceStore | null;
  /** Ends one wherever it is; false where there is none. */
  readonly endSilence: (id: string, at: string, by: string | null) => Promise<boolean>;
}

export type SilenceStore = Pick<Store, "commit" | "document" | "documents">;

/** A reason of 500 characters and an id need no more, in bytes. */
const LARGEST_BODY = 8 * 1024;

const MINUTE_MS = 60_000;

/** Request for a silence: an active alarm or a site, for one of the offered durations. */
const Begin = z
  .strictObject(
    {
      source: z.string({ error: "Say the source of the alarm or the site." }).max(200, "There is no such source."),
      site: z.int({ error: "A site's id is a whole number." }).optional(),
      alarm: z.string({ error: "An alarm's id is a text." }).max(200, "There is no such alarm.").optional(),
      minutes: z.literal([60, 240, 1_440], { error: "Choose 60, 240 or 1440 minutes." }),
      reason: z
        .string({ error: "Say why." })
        .trim()
        .min(1, "Say why.")
        .max(LONGEST_REASON, `Say why in ${LONGEST_REASON} characters at most.`),
    },
    {
      error: ({ code }) =>
        code === "unrecognized_keys" ? "That has a field that is not known here." : "Send one JSON object.",
    },
  )
  .refine(({ alarm, site }) => (alarm === undefined) !== (site === undefined), {
    error: "Say either an alarm or a site.",
  });
type Begin = z.output<typeof Begin>;

/** Silences on the page, for an operator. The guard refuses everybody else. */
export function silenceRoutes({ config, clock, ...options }: SilenceRoutes): Hono {
  const app = new Hono();
  // Otherwise many at once would each count the silences before any of them has come.
  const inTurn = oneAtATime();

  app.post("/", sameOriginOnly, jsonUpTo(LARGEST_BODY, "That is too long for a silence."), async (context) => {
    const asked = Begin.safeParse(await bodyOf(context));
    if (!asked.success) return context.json({ message: asked.error.issues[0]?.message ?? "" }, 400);
    const store = options.silencesOf(asked.data.source);
    const missing = store === null ? NO_SOURCE : await missingOf(store, asked.data);
    if (store === null || missing !== null) return context.json({ message: missing }, 404);
    const { alarm = null, minutes, reason, site = null, source } = asked.data;
    const fromMs = clock.now();
    const silence = silenceOf(
      {
        ...{ source, site, alarm, priorities: null, name: null, reason },
        ...{ fromMs, toMs: fromMs + minutes * MINUTE_MS, madeBy: namedIn(context, config.trusted_proxy) },
      },
      fromMs,
    );
    try {
      await inTurn(() => addSilence(store, silence));
    } catch (error) {
      if (error instanceof ConfigError) return context.json({ message: error.message }, 409);
      throw error;
    }
    return context.json({ id: silence.id, to: silence.to }, 201);
  });

  app.post("/:id/end", sameOriginOnly, async (context) => {
    const by = namedIn(context, config.trusted_proxy);
    const id = context.req.param("id");
    return (await inTurn(() => options.endSilence(id, isoUtc(clock.now()), by)))
      ? context.json({ ended: id })
      : context.json({ message: "There is no such silence (any more)." }, 404);
  });
  return app;
}

const NO_SOURCE = "There is no such source.";

/** A sentence where what is to be silenced is not there; null where it is. */
async function missingOf(store: Pick<Store, "document">, { alarm, site, source }: Begin): Promise<string | null> {
  if (alarm !== undefined) {
    const held = await store.document<StoredAlarm>(documentSet("alarm", source), alarm);
    return held !== undefined && isShown(held) ? null : "There is no such active alarm (any more).";
  }
  const held = await store.document<Listed<Site>>(documentSet("site", source), String(site));
  return held === undefined ? "There is no such site." : null;
}
