import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../../core/errors/errors.ts";
import { tagKey } from "./command.ts";
import type { AllowedTag, CommandsConfig } from "./config.ts";
import type { WriteRefusal } from "./gate.ts";
import type { AcceptedCommand } from "./journal.ts";

/** Entries of the configuration by source and tag. Other tags are never written. */
export type AllowList = ReturnType<typeof createAllowList>;

export function createAllowList(config: CommandsConfig, sourceNames: readonly string[]) {
  const onlySource = sourceNames.length === 1 ? (sourceNames[0] ?? null) : null;
  let entries = indexEntries(config);

  function indexEntries({ allow }: CommandsConfig): Map<string, AllowedTag> {
    const entriesByTag = new Map<string, AllowedTag>();
    for (const entry of allow) {
      const source = entry.source ?? onlySource;
      if (source === null || !sourceNames.includes(source)) {
        throw new ConfigError(`The entry for tag ${entry.tag_id} under commands.allow names no known source.`, {
          hint: `Write one of: ${sourceNames.join(", ")}.`,
        });
      }
      const key = tagKey({ source, tagId: entry.tag_id });
      if (entriesByTag.has(key)) {
        const hint = "Keep one of them.";
        throw new ConfigError(`Tag ${entry.tag_id} has two entries under commands.allow.`, { hint });
      }
      entriesByTag.set(key, entry);
    }
    return entriesByTag;
  }

  return {
    /** The source that a message names; null when it is unknown, or missing where there are several. */
    sourceOf: (named: string | null): string | null =>
      named === null ? onlySource : sourceNames.includes(named) ? named : null,
    entry: (source: string, tagId: string) => entries.get(tagKey({ source, tagId })),
    holds: ({ command, entry }: AcceptedCommand): boolean => entries.get(tagKey(command)) === entry,
    /** Replaces the entries. Equal entries stay the same object, so that commands they accepted stay valid. */
    change(next: CommandsConfig): void {
      const newList = indexEntries(next);
      for (const [key, entry] of entries) if (isDeepStrictEqual(newList.get(key), entry)) newList.set(key, entry);
      entries = newList;
    },
  };
}

export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly min: number | null;
  readonly max: number | null;
  readonly step: number | null;
  /** Message why nothing is written now, whatever the value; null where the gate decides by the value. */
  readonly closed: string | null;
}

export function writableTag(entry: AllowedTag, rehearsal: boolean, refusing: WriteRefusal | null): WritableTag {
  const { from, type } = entry;
  const isOpen = from === undefined || from.includes("operator");
  const senderNotice = isOpen ? null : `Only commands from ${from.join(", ")} may write this tag.`;
  const trial = rehearsal ? "This is a rehearsal (commands.rehearsal): everything is done but the write itself." : null;
  const closed = refusing?.message ?? senderNotice ?? trial;
  if (entry.type === "boolean") return { type, min: null, max: null, step: null, closed };
  return { type, min: entry.min, max: entry.max, step: entry.max_step ?? null, closed };
}
