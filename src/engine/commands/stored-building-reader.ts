import type { Gateway, Tag, TokenInfo } from "../../core/model/building.ts";
import { documentSet, type Store } from "../store/store.ts";
import {
  type StoredObject,
  type StoredTagSystems,
  type StoredToken,
  type StoredValue,
  syncSet,
} from "../sync/stored-documents.ts";

export type StoredBuildingReader = ReturnType<typeof createStoredBuildingReader>;

export function createStoredBuildingReader(store: Store) {
  return {
    tag: (source: string, tagId: string) => store.document<StoredObject<Tag>>(documentSet("tag", source), tagId),
    value: (source: string, tagId: string) => store.document<StoredValue>(documentSet("value", source), tagId),
    async systemIds(source: string, tagId: string): Promise<readonly string[]> {
      return (await store.document<StoredTagSystems>(syncSet("tag-system", source), tagId))?.systemIds ?? [];
    },
    async gateways(source: string, siteId: number): Promise<readonly StoredObject<Gateway>[]> {
      const storedGateways = await store.documents<StoredObject<Gateway>>(documentSet("gateway", source));
      return [...storedGateways.values()].filter((gateway) => gateway.siteId === siteId);
    },
    async tokenInfo(source: string): Promise<TokenInfo | undefined> {
      return (await store.document<StoredToken>(documentSet("token", source), "token"))?.info;
    },
  };
}
