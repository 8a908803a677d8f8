import type { z } from "zod";

/** A check for a list of classes: two with one name could not be told apart in logs, metrics and plans. */
export function uniqueNames(entries: readonly { readonly name: string }[], context: z.RefinementCtx): void {
  const seen = new Set<string>();
  for (const [index, entry] of entries.entries()) {
    if (seen.has(entry.name)) {
      context.addIssue({
        code: "custom",
        path: [index, "name"],
        message: `The name ${entry.name} is used twice: give each one of its own.`,
      });
    }
    seen.add(entry.name);
  }
}
