import { createVirtualFleet, type VirtualFleet, type VirtualMember } from "./virtual-fleet.ts";

/** The virtual fleet of the test that runs, and what its tests ask of it. */
export const SOURCES = Array.from({ length: 9 }, (_, n) => `s${n}`);
export let fleet: VirtualFleet;

export function begin(sources: readonly string[] = SOURCES) {
  fleet = createVirtualFleet(sources);
  return fleet;
}

/** Starts members one after the other, half a second apart. */
export async function started(...names: readonly string[]): Promise<readonly VirtualMember[]> {
  const members = names.map((name) => fleet.member(name));
  for (const member of members) {
    await member.start();
    await fleet.clock.advance(500);
  }
  return members;
}

export const counts = (...members: readonly VirtualMember[]) => members.map((each) => each.holding().length);
export const reasons = () => Object.groupBy(fleet.tables.takeovers, ([, , , , , reason]) => reason);
