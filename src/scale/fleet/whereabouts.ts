import type { FleetStatus } from "./status.ts";

/**
 * Message about a source's holder, for a person who asked another member; the page is empty when it cannot be opened.
 */
export function whereabouts(
  source: string,
  { members, self, sources }: Pick<FleetStatus, "members" | "self" | "sources">,
): { readonly message: string; readonly holder: { readonly name: string; readonly page: string } | null } {
  const name = sources.find((each) => each.source === source)?.holder ?? null;
  const member = members.find((each) => each.name === name);
  if (member === undefined)
    return { message: `No member of the fleet holds the source ${source} just now.`, holder: null };
  if (member.name === self)
    return { message: `The source ${source} is being started by this member, ${self}.`, holder: null };
  const { host, page } = member;
  return {
    message: `The source ${source} is held by the member ${member.name} of the fleet, on ${host}${page === "" ? "" : ` (${page})`}: ask there.`,
    holder: { name: member.name, page },
  };
}
