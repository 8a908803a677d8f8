import type { ConnectorContext } from "../../../src/core/connector.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { ReceiverConfig } from "./config.ts";
import { lineOf } from "./dossier.ts";
import { filled, type Vocabulary } from "./phrases.ts";
import { isOver, type StoredIncident } from "./stored-incident.ts";
import { timeText } from "./text.ts";

const HOUR_MS = 3_600_000;

/**
 * How the values went, for an alarm that is about to be opened, or was triggered again: made once and kept with it, so
 * that every edit shows the same. What cannot be read is left out; no alarm waits for it.
 */
export function createTimeSeriesText(
  { dossier }: Pick<ReceiverConfig, "dossier">,
  words: Vocabulary,
  { clock, log, picture }: Pick<ConnectorContext, "clock" | "log" | "picture">,
): (held: StoredIncident) => Promise<StoredIncident> {
  return async (held) => {
    const { alarm, priority, retriggers, source } = held;
    if (dossier === false || alarm === null || !dossier.priorities.includes(priority) || !isNew(held))
      return held;
    const toMs = clock.now();
    const span = { fromMs: toMs - dossier.hours * HOUR_MS, toMs };
    try {
      const curves = await picture.curves(source, alarm, span);
      const lines = curves.map((curve) => lineOf(curve, span, words)).filter((line) => line !== null);
      const time = timeText(isoUtc(toMs), picture.timeZone(source));
      const heading = filled(words.valuesUntil, { time });
      return { ...held, curves: { retriggers, lines: lines.length === 0 ? [] : [heading, ...lines] } };
    } catch (error) {
      log.debug({ err: error }, "how the values of an alarm went could not be read; it is told without");
      return held;
    }
  };
}

/** Whether it is opened or back, and not read for that already; what is over is told without. */
function isNew({ curves, retriggers, told, ...held }: StoredIncident): boolean {
  if (isOver(held) || curves?.retriggers === retriggers) return false;
  return told === null || told.retriggers !== retriggers;
}
