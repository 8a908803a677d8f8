import { canListen, isListening } from "../../app/config/around-writing.ts";
import { type Config, connectorOf } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { some } from "../../engine/sync/compare.ts";
import type { CheckLine } from "./check-line.ts";

/** As `from` names the command line and the status page. */
const OPERATOR = "operator";

/** Entries through which no command can come, and senders that cannot send any: a line for each. */
export function senderLocks(config: Config, places: Places): readonly CheckLine[] {
  const { sinks, commands } = config;
  const listeners = Object.keys(sinks).filter(
    (name) => sinks[name] !== undefined && isListening(sinks[name]),
  );
  const named = commands.allow.flatMap(({ from = [] }, index) =>
    from.map((sink, n) => ({ sink, path: ["commands", "allow", index, "from", n] })),
  );
  const open = commands.allow.filter(({ from }) => from === undefined);
  return [
    ...(open.length > 0 && listeners.length === 0 ? [noListener(config, places)] : []),
    ...[...Map.groupBy(named, ({ sink }) => sink).values()].flatMap(([first]): readonly CheckLine[] => {
      if (first === undefined || first.sink === OPERATOR) return [];
      const detail = closedSink(first.sink, sinks[first.sink]);
      return detail === null ? [] : [lock(detail, places(first.path))];
    }),
    ...commands.allow.flatMap((entry, index) => {
      const detail = unreachable(entry, listeners);
      return detail === null ? [] : [lock(detail, places(["commands", "allow", index]))];
    }),
  ];
}

function noListener({ sinks }: Config, places: Places): CheckLine {
  const able = Object.entries(sinks).filter(([, sink]) => canListen(sink));
  const [first] = able;
  const where = first === undefined ? ["sinks"] : ["sinks", first[0]];
  const how =
    first === undefined
      ? "add an mqtt sink with commands: { enabled: true }"
      : first[1].enabled
        ? `set ${listenOption(first[0], first[1])}`
        : `set sinks.${first[0]}.enabled: true and ${listenOption(first[0], first[1])}`;
  return lock(
    `No sink listens for commands, so a command that is published at a broker has no effect: ${how}; or write from: [operator] for tags that only the command line and the status page may write.`,
    places(where),
  );
}

function listenOption(name: string, sink: Config["sinks"][string]): string {
  return `sinks.${name}.${connectorOf(sink)}.commands: { enabled: true }`;
}

/** Why no command comes from a sink that `from` names; null where it listens. */
function closedSink(name: string, sink: Config["sinks"][string] | undefined): string | null {
  if (sink === undefined || isListening(sink)) return null;
  if (!canListen(sink))
    return `The sink ${name} cannot send commands, because ${connectorOf(sink)} only receives events: name an mqtt sink in from, or operator.`;
  if (!sink.enabled)
    return `The sink ${name} is switched off, so no command comes from it: set sinks.${name}.enabled: true.`;
  return `The sink ${name} does not listen for commands: set ${listenOption(name, sink)}.`;
}

/** Why no sender can have a command for this tag carried out; null where one can, or its sinks are named above. */
function unreachable(entry: AllowedTag, listeners: readonly string[]): string | null {
  const { from, second_person: isSeconded, tag_id: id } = entry;
  if (from?.length === 0)
    return `Tag ${id} may be written by no sender, because its from is empty: name a sink or operator in it.`;
  // Commands of an operator are agreed to over MQTT only.
  if (isSeconded && from?.every((name) => name === OPERATOR) === true && listeners.length === 0)
    return `Tag ${id} needs a second person, who agrees to commands of an operator over MQTT, and no sink listens for commands: set commands: { enabled: true } at an mqtt sink.`;
  return null;
}

/** The tags that may be written, with what each command still needs. */
export function writableText(entries: readonly AllowedTag[]): string {
  return some(
    entries.map(({ tag_id: id, second_person: isSeconded }) =>
      isSeconded ? `${id} (once a second person agrees)` : id,
    ),
  );
}

export function lock(detail: string, place?: string): CheckLine {
  return { what: "writing", result: "warning", detail, ...(place === undefined ? {} : { place }) };
}
