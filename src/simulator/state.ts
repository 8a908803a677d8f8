import type { AlarmBook, AlarmChange, ManualAlarm, Transition } from "./alarm-book.ts";
import type { Devices, GatewayChange, Hold } from "./devices.ts";
import type { Inventory, InventoryChange } from "./inventory.ts";
import type { TokenChange, Tokens } from "./tokens.ts";

/** What the replay cannot compute again: everything that was done to the world from outside. Plain JSON. */
export interface SimulatorState {
  readonly version: 1;
  readonly epochMs: number;
  readonly nextAlarm: number;
  readonly holds: readonly (readonly [string, readonly Hold[]])[];
  readonly gatewayChanges: readonly (readonly [number, readonly GatewayChange[]])[];
  readonly manualAlarms: readonly ManualAlarm[];
  readonly alarmChanges: readonly (readonly [string, AlarmChange])[];
  readonly transitions: readonly Transition[];
  readonly tokenChanges: readonly (readonly [string, TokenChange])[];
  readonly inventoryChanges: readonly (readonly [string, InventoryChange])[];
}

export interface StateParts {
  readonly devices: Devices;
  readonly alarms: AlarmBook;
  readonly tokens: Tokens;
  readonly inventory: Inventory;
}

export function takeState(
  { devices, alarms, tokens, inventory }: StateParts,
  epochMs: number,
  nextAlarm: number,
): SimulatorState {
  return {
    version: 1,
    epochMs,
    nextAlarm,
    holds: [...devices.holds],
    gatewayChanges: [...devices.gatewayChanges],
    manualAlarms: [...alarms.manual.values()],
    alarmChanges: [...alarms.changes],
    transitions: alarms.noted,
    tokenChanges: [...tokens.changes],
    inventoryChanges: [...inventory.changes],
  };
}

export function putState(
  { devices, alarms, tokens, inventory }: StateParts,
  state: SimulatorState,
  epochMs: number,
): void {
  if (state.version !== 1)
    throw new Error("The state was written by another version of the simulator; begin without it.");
  if (state.epochMs !== epochMs) {
    throw new Error(
      "The state belongs to a world with another epoch; start the simulator with the epoch of the state.",
    );
  }
  for (const [id, holds] of state.holds) devices.holds.set(id, [...holds]);
  for (const [id, changes] of state.gatewayChanges) devices.gatewayChanges.set(id, [...changes]);
  for (const alarm of state.manualAlarms) alarms.manual.set(alarm.id, alarm);
  for (const [id, change] of state.alarmChanges) alarms.changes.set(id, change);
  for (const transition of state.transitions) alarms.note(transition);
  for (const [text, change] of state.tokenChanges)
    if (tokens.get(text) !== undefined) tokens.change(text, change);
  for (const [key, change] of state.inventoryChanges) inventory.changes.set(key, change);
}
