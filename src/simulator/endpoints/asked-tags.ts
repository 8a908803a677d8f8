import { errorReply, forbiddenReply, invalidReply, notFoundReply } from "../envelope.ts";
import type { SimReply } from "../exchange.ts";
import { maySeeSite } from "../tokens.ts";
import type { Tag } from "../world.ts";
import type { Call } from "./endpoint.ts";

export type AskedTags = { readonly tags: readonly Tag[] } | { readonly refusal: SimReply };

/** The tags of a read, write or history request, or the answer when one of them is unknown or out of scope. */
export function findTags(call: Call, ids: readonly string[]): AskedTags {
  const { world, inventory, options } = call.scene;
  const tags: Tag[] = [];
  for (const id of ids) {
    const tag = world.tags.get(id);
    const exists =
      tag !== undefined && inventory.exists("tags", id) && inventory.exists("sites", tag.site.id);
    if (!exists) {
      if (options.reads.unknown_tag === "omit") continue;
      return { refusal: refusal(call, options.reads.unknown_tag, id) };
    }
    const visible = maySeeSite(call.token, tag.site.id) && call.token.visibleTags?.has(id) !== false;
    if (!visible) {
      if (options.reads.out_of_scope_tag === "omit") continue;
      return { refusal: refusal(call, options.reads.out_of_scope_tag, id) };
    }
    tags.push(tag);
  }
  if (options.reads.order === "id") tags.sort(byNumber);
  return { tags };
}

/** Ids are numbers written as text: the shorter one is the smaller one. */
function byNumber(a: Tag, b: Tag): number {
  return a.id.length - b.id.length || (a.id < b.id ? -1 : 1);
}

function refusal({ scene }: Call, status: "404" | "422" | "403", id: string): SimReply {
  switch (status) {
    case "404":
      return notFoundReply();
    case "422":
      return invalidReply([{ source: "tags", message: `The selected tags is invalid: ${id}.` }]);
    case "403":
      return forbiddenReply(scene.options.forbidden);
  }
}

export function deviceRefusal(): SimReply {
  return errorReply(500, "An unexpected error occurred. Please try again later.");
}
