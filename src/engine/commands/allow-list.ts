import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../../core/errors/errors.ts";
import { tagKey } from "./command.ts";
import type { AllowedTag, CommandsConfig } from "./config.ts";
import type { Accepted } from "./journal.ts";

/** Entries of the configuration by source and tag. Other tags are never written. */
export interface AllowList {
  /** The source that a message means; null when it names none that exists, or none where there are several. */
  sourceOf(named: string | null): string | null;
  entry(source: string, tagId: string): AllowedTag | undefined;
  /** Whether the entry by which a command was accepted is still the one that counts. */
  holds(accepted: Accepted): boolean;
  /** Other entries from now on. One that says the same as before is the one that was. */
  change(config: CommandsConfig): void;
}

export function createAllowList(config: CommandsConfig, sourceNames: readonly string[]): AllowList {
  const only = sourceNames.length === 1 ? (sourceNames[0] ?? null) : null;
  let entries = entriesOf(config, sourceNames, only);
  return {
    sourceOf: (named) => (named === null ? only : sourceNames.includes(named) ? named : null),
    entry: (source, tagId) => entries.get(tagKey({ source, tagId })),
    holds: ({ command, entry }) => entries.get(tagKey(command)) === entry,
    change(next) {
      const listed = entriesOf(next, sourceNames, only);
      for (const [key, entry] of entries) if (isDeepStrictEqual(listed.get(key), entry)) listed.set(key, entry);
      entries = listed;
    },
  };
}

function entriesOf(
  config: CommandsConfig,
  sourceNames: readonly string[],
  only: string | null,
): Map<string, AllowedTag> {
  const entries = new Map<string, AllowedTag>();
  for (const entry of config.allow) {
    const source = entry.source ?? only;
    if (source === null || !sourceNames.includes(source)) {
      throw new ConfigError(`The entry for tag ${entry.tag_id} under commands.allow names no known source.`, {
        hint: `Write one of: ${sourceNames.join(", ")}.`,
      });
    }
    const key = tagKey({ source, tagId: entry.tag_id });
    if (entries.has(key)) {
      throw new ConfigError(`Tag ${entry.tag_id} has two entries under commands.allow.`, {
        hint: "Keep one of them.",
      });
    }
    entries.set(key, entry);
  }
  return entries;
}
