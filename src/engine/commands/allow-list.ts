import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../../core/errors/errors.ts";
import { tagKey } from "./command.ts";
import type { AllowedTag, CommandsConfig } from "./config.ts";
import type { WriteRefusal } from "./gate.ts";
import type { AcceptedCommand } from "./journal.ts";

/** Tags that commands may write, from `commands.allow`. Other tags are never written. */
export type TagAllowList = ReturnType<typeof createTagAllowList>;

export function createTagAllowList(config: CommandsConfig, sourceNames: readonly string[]) {
  const soleSourceName = sourceNames.length === 1 ? (sourceNames[0] ?? null) : null;
  let allowedTags = indexAllowedTags(config);

  function indexAllowedTags({ allow }: CommandsConfig): Map<string, AllowedTag> {
    const allowedTagsByKey = new Map<string, AllowedTag>();
    for (const allowedTag of allow) {
      const source = allowedTag.source ?? soleSourceName;
      if (source === null || !sourceNames.includes(source)) {
        throw new ConfigError(`The entry for tag ${allowedTag.tag_id} under commands.allow names no known source.`, {
          hint: `Write one of: ${sourceNames.join(", ")}.`,
        });
      }
      const key = tagKey({ source, tagId: allowedTag.tag_id });
      if (allowedTagsByKey.has(key)) {
        const hint = "Keep one of them.";
        throw new ConfigError(`Tag ${allowedTag.tag_id} has two entries under commands.allow.`, { hint });
      }
      allowedTagsByKey.set(key, allowedTag);
    }
    return allowedTagsByKey;
  }

  return {
    resolveSource: (statedSource: string | null): string | null =>
      statedSource === null ? soleSourceName : sourceNames.includes(statedSource) ? statedSource : null,
    findEntry: (source: string, tagId: string) => allowedTags.get(tagKey({ source, tagId })),
    isStillAllowed: ({ command, allowedTag }: AcceptedCommand): boolean =>
      allowedTags.get(tagKey(command)) === allowedTag,
    /** Keeps the objects of unchanged entries, so that queued commands for their tags stay valid. */
    replaceRules(newConfig: CommandsConfig): void {
      const newTags = indexAllowedTags(newConfig);
      for (const [key, allowedTag] of allowedTags)
        if (isDeepStrictEqual(newTags.get(key), allowedTag)) newTags.set(key, allowedTag);
      allowedTags = newTags;
    },
  };
}

export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly min: number | null;
  readonly max: number | null;
  readonly step: number | null;
  /** Reason why the tag must not be written now, whatever the value; null if the value decides. */
  readonly closed: string | null;
}

export function toWritableTag(
  allowedTag: AllowedTag,
  isRehearsal: boolean,
  writingRefusal: WriteRefusal | null,
): WritableTag {
  const { from, type } = allowedTag;
  const isOpenToOperator = from === undefined || from.includes("operator");
  const senderNotice = isOpenToOperator ? null : `Only commands from ${from.join(", ")} may write this tag.`;
  const rehearsalNotice = isRehearsal
    ? "This is a rehearsal (commands.rehearsal): everything is done but the write itself."
    : null;
  const unwritableReason = writingRefusal?.message ?? senderNotice ?? rehearsalNotice;
  if (allowedTag.type === "boolean") return { type, min: null, max: null, step: null, closed: unwritableReason };
  return {
    type,
    min: allowedTag.min,
    max: allowedTag.max,
    step: allowedTag.max_step ?? null,
    closed: unwritableReason,
  };
}
