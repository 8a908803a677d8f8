import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { assignSources, type MemberCandidate, type SourceHolder } from "#src/scale/fleet/assign-sources.ts";

const NAMES = ["a", "b", "c", "d", "e", "f", "g"];
const SOURCES = Array.from({ length: 40 }, (_, n) => `s${String(n).padStart(2, "0")}`);

/** Members, some of which drain, in any order. */
const sharers = fc
  .uniqueArray(fc.tuple(fc.constantFrom(...NAMES), fc.integer({ min: 0, max: 4 })), {
    maxLength: NAMES.length,
    selector: ([name]) => name,
  })
  .map((drawn) => drawn.map(([name, luck]) => ({ name, acceptsSources: luck > 0, unable: [] })));

/** Members that are able to hold some sources only. */
const choosySharers = fc
  .tuple(sharers, fc.array(fc.array(fc.constantFrom(...SOURCES), { maxLength: 25 }), { maxLength: 7 }))
  .map(([members, unables]) => members.map((member, n): MemberCandidate => ({ ...member, unable: unables[n] ?? [] })));

const holders = fc
  .tuple(
    fc.integer({ min: 0, max: SOURCES.length }),
    fc.array(fc.option(fc.constantFrom(...NAMES, "gone")), { minLength: SOURCES.length, maxLength: SOURCES.length }),
  )
  .map(([count, owned]) => SOURCES.slice(0, count).map((source, n): SourceHolder => [source, owned[n] ?? null]));

function loadsOf(members: readonly MemberCandidate[], shares: ReadonlyMap<string, string | null>): readonly number[] {
  const taking = members.filter(({ acceptsSources }) => acceptsSources);
  return taking.map(({ name }) => [...shares.values()].filter((holder) => holder === name).length);
}

/** The minimum: each member keeps up to an even share, and the members with most sources keep the larger shares. */
function fewestMoves(members: readonly MemberCandidate[], owned: readonly SourceHolder[]): number {
  const taking = members.filter(({ acceptsSources }) => acceptsSources);
  const counts = taking.map(({ name }) => owned.filter(([, holder]) => holder === name).length);
  const base = Math.floor(owned.length / taking.length);
  const larger = owned.length % taking.length;
  return counts
    .toSorted((a, b) => b - a)
    .reduce((sum, count, n) => sum + Math.max(0, count - (n < larger ? base + 1 : base)), 0);
}

describe("assignSources", () => {
  test("assignSources assigns each source to one member, evenly, with the fewest moves", () => {
    fc.assert(
      fc.property(sharers, holders, (members, owned) => {
        const shares = assignSources(members, owned);
        expect([...shares.keys()].toSorted()).toEqual(owned.map(([source]) => source));
        const taking = members.filter(({ acceptsSources }) => acceptsSources).map(({ name }) => name);
        if (taking.length === 0) {
          expect(new Set(shares.values()).size).toBeLessThanOrEqual(owned.length === 0 ? 0 : 1);
          return;
        }
        expect([...shares.values()].every((name) => name !== null && taking.includes(name))).toBe(true);
        const loads = loadsOf(members, shares);
        expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(1);
        const moved = owned.filter(
          ([source, holder]) => holder !== null && taking.includes(holder) && shares.get(source) !== holder,
        );
        expect(moved.length).toBe(fewestMoves(members, owned));
      }),
      { numRuns: 500 },
    );
  });

  test("assignSources returns the same assignment for any order of its input", () => {
    fc.assert(
      fc.property(choosySharers, holders, fc.integer({ min: 1, max: 1_000 }), (members, owned, stride) => {
        const turned = <T>(list: readonly T[]) =>
          list
            .map((each, n) => ({ each, at: (n * 7_919 * stride) % 1_009 }))
            .toSorted((a, b) => a.at - b.at)
            .map(({ each }) => each);
        expect(assignSources(turned(members), turned(owned))).toEqual(assignSources(members, owned));
      }),
    );
  });

  test("assignSources assigns each source to a member that can run it, and keeps an assignment that it returned before", () => {
    fc.assert(
      fc.property(choosySharers, holders, (members, owned) => {
        const shares = assignSources(members, owned);
        for (const [source, name] of shares) {
          const able = members.filter(({ acceptsSources, unable }) => acceptsSources && !unable.includes(source));
          if (able.length === 0) expect(name).toBeNull();
          else expect(able.map((member) => member.name)).toContain(name);
        }
        expect(new Map(assignSources(members, [...shares]))).toEqual(new Map(shares));
      }),
      { numRuns: 500 },
    );
  });

  test("assignSources reaches a stable assignment even when members act on outdated tables", () => {
    fc.assert(
      fc.property(
        choosySharers,
        holders,
        fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 100, maxLength: 100 }),
        (members, owned, ticks) => {
          const now = new Map(owned);
          const gone = [...now].filter(([, name]) => !members.some((member) => member.name === name));
          for (const [source] of gone) now.set(source, null);
          const looks = new Map(members.map(({ name }) => [name, new Map(now)]));
          const act = (member: MemberCandidate, seen: ReadonlyMap<string, string | null>) => {
            const shares = assignSources(members, [...seen]);
            for (const [source, share] of shares) {
              if (share === member.name && now.get(source) === null) now.set(source, member.name);
            }
            const surplus = [...now].find(
              ([source, holder]) => holder === member.name && shares.get(source) !== member.name,
            );
            const isAwaited = [...shares].some(
              ([source, share]) => now.get(source) === null && share !== null && share !== member.name,
            );
            if (surplus !== undefined && !isAwaited) now.set(surplus[0], null);
          };
          for (const [n, tick] of ticks.entries()) {
            const member = members[tick % Math.max(1, members.length)];
            if (member === undefined) continue;
            act(member, n % 2 === 0 ? now : (looks.get(member.name) ?? now));
            looks.set(member.name, new Map(now));
          }
          for (let before = ""; before !== JSON.stringify([...now]); ) {
            before = JSON.stringify([...now]);
            for (const member of members) act(member, now);
          }
          expect(new Map(assignSources(members, [...now]))).toEqual(now);
        },
      ),
      { numRuns: 50 },
    );
  });
});
