import type { Gateway, Tag, TokenInfo } from "../../core/model/building.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { Listed, StoredToken, StoredValue } from "../sync/snapshot.ts";

/** The building as the gate needs it, read from the stored documents at each call. */
export interface BuildingView {
  tag(source: string, tagId: string): Promise<Listed<Tag> | undefined>;
  value(source: string, tagId: string): Promise<StoredValue | undefined>;
  gateways(source: string, siteId: number): Promise<readonly Listed<Gateway>[]>;
  /** Information about the token; undefined before the first request. */
  token(source: string): Promise<TokenInfo | undefined>;
}

export function viewOf(store: Store): BuildingView {
  return {
    tag: (source, tagId) => store.document<Listed<Tag>>(documentSet("tag", source), tagId),
    value: (source, tagId) => store.document<StoredValue>(documentSet("value", source), tagId),
    async gateways(source, siteId) {
      const all = await store.documents<Listed<Gateway>>(documentSet("gateway", source));
      return [...all.values()].filter((held) => held.siteId === siteId);
    },
    async token(source) {
      return (await store.document<StoredToken>(documentSet("token", source), "token"))?.info;
    },
  };
}
