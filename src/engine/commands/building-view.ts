import type { Gateway, Tag, TokenInfo } from "../../core/model/building.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { Held, HeldToken, HeldValue } from "../sync/snapshot.ts";

/** What the gate needs to know of the building, read from the snapshot at the moment of asking. */
export interface BuildingView {
  tag(source: string, tagId: string): Promise<Held<Tag> | undefined>;
  value(source: string, tagId: string): Promise<HeldValue | undefined>;
  gateways(source: string, siteId: number): Promise<readonly Held<Gateway>[]>;
  /** What the service said about our token; undefined before it was asked. */
  token(source: string): Promise<TokenInfo | undefined>;
}

export function viewOf(store: Store): BuildingView {
  return {
    tag: (source, tagId) => store.document<Held<Tag>>(documentSet("tag", source), tagId),
    value: (source, tagId) => store.document<HeldValue>(documentSet("value", source), tagId),
    async gateways(source, siteId) {
      const all = await store.documents<Held<Gateway>>(documentSet("gateway", source));
      return [...all.values()].filter((held) => held.siteId === siteId);
    },
    async token(source) {
      return (await store.document<HeldToken>(documentSet("token", source), "token"))?.info;
    },
  };
}
