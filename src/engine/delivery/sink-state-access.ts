import type { SinkState } from "../../core/connector.ts";
import { type Store, sinkStateSet } from "../store/store.ts";
import { sinkStateChange } from "./offer.ts";

export function createSinkState(sink: string, store: Pick<Store, "document" | "documents" | "commit">): SinkState {
  const set = sinkStateSet(sink);
  return {
    get: (key) => store.document(set, key),
    all: () => store.documents(set),
    async put(remembered) {
      const documents = sinkStateChange(sink, remembered);
      if (documents.length > 0) await store.commit({ documents });
    },
  };
}
