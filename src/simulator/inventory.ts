// What was renamed, altered or removed by hand since the recording.

export const INVENTORY_KINDS = ["sites", "tags", "gateways", "hosts", "systems", "triggers"] as const;
export type InventoryKind = (typeof INVENTORY_KINDS)[number];

export interface InventoryChange {
  readonly removed?: boolean | undefined;
  /** Attributes as the interface names them, in place of the recorded ones. */
  readonly attributes?: Readonly<Record<string, unknown>> | undefined;
}

export interface Inventory {
  exists(kind: InventoryKind, id: string | number): boolean;
  /** The attributes with what was changed by hand. */
  altered<T extends object>(kind: InventoryKind, id: string | number, attributes: T): T;
  change(kind: InventoryKind, id: string | number, change: InventoryChange): void;
  readonly changes: Map<string, InventoryChange>;
}

export function createInventory(): Inventory {
  const changes = new Map<string, InventoryChange>();
  return {
    changes,
    exists: (kind, id) => changes.get(`${kind}/${id}`)?.removed !== true,
    altered(kind, id, attributes) {
      const change = changes.get(`${kind}/${id}`);
      return change?.attributes === undefined ? attributes : { ...attributes, ...change.attributes };
    },
    change(kind, id, change) {
      const known = changes.get(`${kind}/${id}`);
      changes.set(`${kind}/${id}`, {
        removed: change.removed ?? known?.removed,
        attributes: { ...known?.attributes, ...change.attributes },
      });
    },
  };
}
