import { ConfigError } from "../errors.ts";
import { tagKey } from "./command.ts";
import type { AllowedTag, CommandsConfig } from "./config.ts";

/** The entries of the configuration by source and tag. What is not in here is not written. */
export interface AllowList {
  /** The source that a message means; null when it names none that exists, or none where there are several. */
  sourceOf(named: string | null): string | null;
  entry(source: string, tagId: string): AllowedTag | undefined;
}

export function createAllowList(config: CommandsConfig, sourceNames: readonly string[]): AllowList {
  const only = sourceNames.length === 1 ? (sourceNames[0] ?? null) : null;
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
  return {
    sourceOf: (named) => (named === null ? only : sourceNames.includes(named) ? named : null),
    entry: (source, tagId) => entries.get(tagKey({ source, tagId })),
  };
}
