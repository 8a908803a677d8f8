import type { z } from "zod";

/** Rejects two classes with one name, which logs, metrics and plans could not distinguish. */
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
