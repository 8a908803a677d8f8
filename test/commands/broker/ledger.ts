import type { Kind, Message, Unit } from "./messages.ts";
import type { Delivery } from "./wire-tap.ts";

export interface Arrival {
  readonly delivery: Delivery;
  readonly message: Message;
  readonly unit: Unit;
}

export type Ledger = ReturnType<typeof createLedger>;

export function createLedger() {
  const messages: Message[] = [];
  const byId = new Map<string, Arrival[]>();
  const byValue = new Map<number, { readonly unit: Unit; readonly message: Message }>();
  return {
    addMessage(message: Message): number {
      messages.push(message);
      for (const unit of message.units) byValue.set(unit.value, { unit, message });
      return messages.length;
    },
    lastSerial: () => messages.length,
    message: (serial: number) => messages[serial - 1],
    arrived(delivery: Delivery): void {
      const message = messages[delivery.serial - 1];
      for (const unit of message?.units ?? []) {
        const arrivals = byId.get(unit.id) ?? [];
        byId.set(unit.id, arrivals);
        if (message !== undefined) arrivals.push({ delivery, message, unit });
      }
    },
    arrivals: (id: string): readonly Arrival[] => byId.get(id) ?? [],
    byValue: (value: number) => byValue.get(value),
  };
}

export function kindOf({ delivery, message }: Pick<Arrival, "delivery" | "message">): Kind {
  if (delivery.retained) return "retained";
  const kind = delivery.connection.protocol === 5 ? message.kind : message.kindBy3;
  return kind === "retained" ? "lawful" : kind;
}
