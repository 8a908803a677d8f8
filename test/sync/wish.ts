import type { ClassDemand } from "#src/engine/sync/plan/overload.ts";

/** A class of so many tags, each read every so many seconds. */
export const wish = (name: string, tags: number, seconds: number, more: Partial<ClassDemand> = {}): ClassDemand => ({
  name,
  tags,
  everyMs: seconds * 1_000,
  firm: false,
  importance: 1,
  ...more,
});
