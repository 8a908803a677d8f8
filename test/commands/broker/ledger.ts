import type { Kind, Message, Unit } from "./messages.ts";
import type { Delivery } from "./wire-tap.ts";

export interface Ledger {
  enter(message: Message): number;
  lastSerial(): number;
  message(serial: number): Message | undefined;
  arrived(delivery: Delivery): void;
  arrivals(id: string): readonly Arrival[];
  byValue(value: number): { readonly unit: Unit; readonly message: Message } | undefined;
}

export interface Arrival {
  readonly delivery: Delivery;
  readonly message: Message;
  readonly unit: Unit;
}

export function createLedger(): Ledger {
  const messages: Message[] = [];
  const byId = new Map<string, Arrival[]>();
  const byValue = new Map<number, { readonly unit: Unit; readonly message: Message }>();
  return {
    enter(message) {
      messages.push(message);
      for (const unit of message.units) byValue.set(unit.value, { unit, message });
      return messages.length;
    },
    lastSerial: () => messages.length,
    message: (serial) => messages[serial - 1],
    arrived(delivery) {
      const message = messages[delivery.serial - 1];
      for (const unit of message?.units ?? []) {
        const arrivals = byId.get(unit.id) ?? [];
        byId.set(unit.id, arrivals);
        if (message !== undefined) arrivals.push({ delivery, message, unit });
      }
    },
    arrivals: (id) => byId.get(id) ?? [],
    byValue: (value) => byValue.get(value),
  };
}

export function kindOf({ delivery, message }: Pick<Arrival, "delivery" | "message">): Kind {
  if (delivery.retained) return "retained";
  const kind = delivery.connection.protocol === 5 ? message.kind : message.kindBy3;
  return kind === "retained" ? "lawful" : kind;
}
