import { type Config, connectorOf } from "../../app/config/config.ts";
import type { Sink } from "../../core/connector.ts";
import { type Event, sourceUri } from "../../core/model/event.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { matches } from "../../engine/delivery/filter.ts";
import { loneSink } from "../shell/lone-sink.ts";
import { type CheckLine, trouble, within } from "./check-line.ts";

/** Whether a sink's far end is there and lets us in; no event is written. */
export async function checkSink(
  name: string,
  config: Config,
  signal: AbortSignal,
): Promise<readonly CheckLine[]> {
  const what = `sink ${name}`;
  const entry = config.sinks[name];
  if (entry === undefined || !entry.enabled)
    return [{ what, result: "warning", detail: "switched off (enabled: false)" }];
  const connector = connectorOf(entry);
  let sink: Sink | undefined;
  try {
    sink = await loneSink(name, entry);
    if (sink?.probe === undefined) return [{ what, result: "ok", detail: `${connector}: nothing to ask` }];
    const asked = sink;
    await within(signal, async (limited) => asked.probe?.(limited));
    const keepsMs = await within(signal, async (limited) => (await asked.keepsMs?.(limited)) ?? null);
    return [
      { what, result: "ok", detail: `${connector} answers` },
      ...(keepsMs === null ? [] : pastThatIsLost(what, entry, config, keepsMs)),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [trouble(what, error)];
  } finally {
    await sink?.close();
  }
}

/** Nowhere to go is no fault of the configuration, and hardly what somebody wants. */
export function checkAnySink({ sinks, state }: Config): readonly CheckLine[] {
  if (Object.values(sinks).some(({ enabled }) => enabled)) return [];
  const none = Object.keys(sinks).length === 0 ? "No sink is configured" : "Every sink is switched off";
  const detail = `${none}: what happens is kept for ${formatDuration(state.replay_window)} and goes nowhere. Name one under sinks, such as files: { file: { folder: events } }.`;
  return [{ what: "sinks", result: "warning", detail }];
}

/** The past that is asked for and that the sink gets, and that is older than what its far end keeps. */
function pastThatIsLost(
  what: string,
  { filter }: Config["sinks"][string],
  config: Config,
  keepsMs: number,
): readonly CheckLine[] {
  return Object.entries(config.sources).flatMap(([source, { history }]) =>
    history.flatMap(({ name, backfill, total }): CheckLine[] => {
      const type = total ? "tag-total" : "tag-history";
      const event = { type, source: sourceUri(source), siteid: filter.sites[0] } as Event;
      if (backfill <= keepsMs || !matches({ ...filter, priorities: [] }, event)) return [];
      const asked = `the history ${name} of ${source} asks for the past ${formatDuration(backfill)}`;
      const detail = `It keeps ${formatDuration(keepsMs)}, and ${asked}: what is older is fetched and lost there. Shorten backfill, or keep more there.`;
      return [{ what, result: "warning", detail }];
    }),
  );
}
