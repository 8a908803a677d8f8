import { closeAfterTest } from "../test-resources.ts";
import { createRig, type Rig, type RigOptions, SITE } from "./command-harness.ts";

export const TAGS: readonly string[] = Array.from({ length: 25 }, (_, n) => String(10250 + n));
export const TAG = "10250";

export async function testRig(options: RigOptions = {}): Promise<Rig> {
  return closeAfterTest(await createRig(options));
}

/** An entry of the allow-list for the values 15 to 25. */
export function allowed(tag_id: string, more: object = {}) {
  return { site_id: SITE, tag_id, type: "number" as const, min: 15, max: 25, ...more };
}

type FaultRule = NonNullable<NonNullable<RigOptions["simulator"]>["faults"]>[number];

/** Simulator options with one fault, by default of the first write request. */
export function faulty(
  fault: FaultRule["fault"],
  match: FaultRule["match"] = { endpoints: ["write"] },
  when: FaultRule["when"] = { count: 1 },
) {
  return { faults: [{ match, when, fault }] };
}
