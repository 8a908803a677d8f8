import type { SinkMemory } from "../../core/connector.ts";
import { memorySet, type Store } from "../store/store.ts";
import { memoryChange } from "./offer.ts";

/** What a sink remembers, in the state. */
export function createSinkMemory(
  sink: string,
  store: Pick<Store, "document" | "documents" | "commit">,
): SinkMemory {
  const set = memorySet(sink);
  return {
    get: (key) => store.document(set, key),
    all: () => store.documents(set),
    async put(remembered) {
      const documents = memoryChange(sink, remembered);
      if (documents.length > 0) await store.commit({ documents });
    },
  };
}
