import { isDeepStrictEqual } from "node:util";
import { CONNECTOR_NAMES, type ConnectorName, definitionOf } from "../../../connectors/catalog.ts";
import type { Contradiction } from "./problems.ts";

type SinkSection = Readonly<Partial<Record<ConnectorName, unknown>>> & {
  readonly enabled: boolean;
  readonly filter: unknown;
};

/** Sinks that would write to the same place, each with the first sink that it conflicts with. */
export function sharedFolders(sinks: Readonly<Record<string, SinkSection>>): readonly Contradiction[] {
  return CONNECTOR_NAMES.flatMap((connector) => {
    const { shared } = definitionOf(connector);
    if (shared === undefined) return [];
    const all = Object.entries(sinks).filter(([, sink]) => sink.enabled && sink[connector] !== undefined);
    return all.flatMap(([name, sink], n): readonly Contradiction[] => {
      for (const [first, other] of all.slice(0, n)) {
        const found = shared(other[connector], sink[connector]);
        if (found === null) continue;
        if (found.bearsOthers === true && !isDeepStrictEqual(other.filter, sink.filter)) continue;
        const message = `The sinks ${first} and ${name} would ${found.would}.`;
        return [{ path: ["sinks", name, connector, ...found.path], message }];
      }
      return [];
    });
  });
}
