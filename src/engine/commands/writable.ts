import type { AllowedTag, CommandsConfig } from "./config.ts";
import type { Refusing } from "./gate.ts";

/** Values that a person may write to a tag. */
export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly min: number | null;
  readonly max: number | null;
  /** Largest change at once. */
  readonly step: number | null;
  /** Why nothing is written now, whatever the value, as a sentence; null where the gate decides by the value. */
  readonly closed: string | null;
}

/** `refusing`: what closes writing as a whole, at this moment. */
export function writableTag(
  entry: AllowedTag,
  { rehearsal }: Pick<CommandsConfig, "rehearsal">,
  refusing: Refusing | null,
): WritableTag {
  const closed = refusing?.message ?? fromElsewhere(entry) ?? (rehearsal ? REHEARSAL : null);
  if (entry.type === "boolean") return { type: "boolean", min: null, max: null, step: null, closed };
  const { max, max_step: step = null, min, type } = entry;
  return { type, min, max, step, closed };
}

const REHEARSAL = "This is a rehearsal (commands.rehearsal): everything is done but the write itself.";

function fromElsewhere({ from }: AllowedTag): string | null {
  if (from === undefined || from.includes("operator")) return null;
  return `Only commands from ${from.join(", ")} may write this tag.`;
}
