/**
 * Member to which sources can be assigned. All members compute the same assignment, without a leader. A source moves
 * only if its holder drains, stops or does not reach the service, or has two more sources than another member.
 */
export interface MemberCandidate {
  readonly name: string;
  /** False while the member hands over all its sources, before it stops or because it is being drained. */
  readonly acceptsSources: boolean;
  readonly unable: readonly string[];
  readonly reach?: ServiceReachBySource;
}

/** By source: whether a member reaches the service (`true`: by requests; `checked`: by a health check only). */
export type ServiceReachBySource = Readonly<Record<string, boolean | "checked">>;

export type SourceHolder = readonly [source: string, member: string | null];

/** By source: the member to which the source is assigned; null if no member can poll it. */
export type MemberBySource = ReadonlyMap<string, string | null>;

interface MemberLoad {
  readonly name: string;
  readonly failedSources: ReadonlySet<string>;
  readonly reach: ServiceReachBySource;
  /** True if another member reaches a monitoring service that this member does not reach. */
  readonly isCutOff: boolean;
  /** Sources that are assigned to the member; the last source in this list moves to another member first. */
  readonly sources: string[];
}

export function assignSources(members: readonly MemberCandidate[], holders: readonly SourceHolder[]): MemberBySource {
  const memberLoads: readonly MemberLoad[] = members
    .filter(({ acceptsSources }) => acceptsSources)
    .toSorted((a, b) => compareCodeUnits(a.name, b.name))
    .map(({ name, unable, reach = {} }) => ({
      ...{ name, failedSources: new Set(unable), reach, sources: [] },
      isCutOff: Object.keys(reach).some(
        (source) => reach[source] === false && members.some((other) => isServiceReached(other.reach ?? {}, source)),
      ),
    }));
  const sourcesToMove = keepSourcesWithHolders(memberLoads, holders);
  const unassignedSources = sourcesToMove.filter((source) => !assignToLeastLoadedMember(memberLoads, source));
  while (moveOneSource(memberLoads));
  return new Map([
    ...memberLoads.flatMap(({ name, sources }) => sources.map((source) => [source, name] as const)),
    ...unassignedSources.map((source) => [source, null] as const),
  ]);
}

function keepSourcesWithHolders(loads: readonly MemberLoad[], holders: readonly SourceHolder[]): readonly string[] {
  const sourcesToMove: string[] = [];
  for (const [source, member] of holders.toSorted(([a], [b]) => compareCodeUnits(a, b))) {
    const holderLoad = loads.find(({ name }) => name === member);
    const isServiceReachedElsewhere =
      holderLoad?.reach[source] === false &&
      loads.some(({ failedSources, reach }) => isServiceReached(reach, source) && !failedSources.has(source));
    if (holderLoad === undefined || holderLoad.failedSources.has(source) || isServiceReachedElsewhere)
      sourcesToMove.push(source);
    else holderLoad.sources.push(source);
  }
  return sourcesToMove;
}

export function isServiceReached(reach: ServiceReachBySource, source: string): boolean {
  return reach[source] === true || reach[source] === "checked";
}

const canReachService = ({ reach, isCutOff }: MemberLoad, source: string) =>
  isServiceReached(reach, source) || (reach[source] === undefined && !isCutOff);

/** Prefers members that reach the service, then the fewest sources. Returns false if no member can poll the source. */
function assignToLeastLoadedMember(loads: readonly MemberLoad[], source: string): boolean {
  const capableMembers = loads.filter(({ failedSources }) => !failedSources.has(source));
  const membersReachingService = capableMembers.filter((load) => canReachService(load, source));
  const candidateMembers = membersReachingService.length > 0 ? membersReachingService : capableMembers;
  const [leastLoadedMember] = candidateMembers.toSorted((a, b) => a.sources.length - b.sources.length);
  leastLoadedMember?.sources.push(source);
  return leastLoadedMember !== undefined;
}

/** Moves one source to a member with at least two fewer sources; returns false without such a member. */
function moveOneSource(loads: readonly MemberLoad[]): boolean {
  const memberLoadsBySourceCount = loads.toSorted((a, b) => b.sources.length - a.sources.length);
  for (const overloadedMember of memberLoadsBySourceCount) {
    for (const underloadedMember of memberLoadsBySourceCount.toReversed()) {
      if (overloadedMember.sources.length - underloadedMember.sources.length < 2) break;
      const index = overloadedMember.sources.findLastIndex(
        (source) => !underloadedMember.failedSources.has(source) && canReachService(underloadedMember, source),
      );
      if (index < 0) continue;
      underloadedMember.sources.push(...overloadedMember.sources.splice(index, 1));
      return true;
    }
  }
  return false;
}

const compareCodeUnits = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
