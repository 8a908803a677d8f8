import { onTestFinished } from "vitest";
import { createRig, type Rig, type RigOptions, SITE } from "./rig.ts";

/** The first numeric tags of the site; `createRig` sets each to 20. */
export const TAGS: readonly string[] = Array.from({ length: 25 }, (_, n) => String(10250 + n));
export const TAG = "10250";

/** A rig that is closed at the end of the test. */
export async function testRig(options: RigOptions = {}): Promise<Rig> {
  const rig = await createRig(options);
  onTestFinished(() => rig.close());
  return rig;
}

/** An entry of the allow-list for numbers from 15 to 25. */
export function allowed(tag_id: string, more: object = {}) {
  return { site_id: SITE, tag_id, type: "number" as const, min: 15, max: 25, ...more };
}
