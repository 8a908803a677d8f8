import type { AlarmBook } from "../alarm-book.ts";
import type { Buckets } from "../buckets.ts";
import type { Devices } from "../devices.ts";
import type { SimReply, SimRequest } from "../exchange.ts";
import type { EndpointName } from "../fault-options.ts";
import type { History } from "../history.ts";
import type { Inventory } from "../inventory.ts";
import type { SimulatorOptions } from "../options.ts";
import type { Query } from "../query.ts";
import type { Random } from "../random.ts";
import type { Token } from "../tokens.ts";
import type { WrittenValue } from "../truth.ts";
import type { World } from "../world.ts";

/** Everything that the endpoints answer from. */
export interface Scene {
  readonly options: SimulatorOptions;
  readonly world: World;
  readonly devices: Devices;
  readonly buckets: Buckets;
  readonly history: History;
  readonly alarms: AlarmBook;
  readonly inventory: Inventory;
  readonly random: Random;
  /** Notes a value that a client wrote. */
  readonly wrote: (value: WrittenValue) => void;
}

export interface Call {
  readonly scene: Scene;
  readonly request: SimRequest;
  readonly query: Query;
  readonly token: Token;
  readonly nowMs: number;
  /** Number of the request in the request log. */
  readonly number: number;
}

export interface Endpoint {
  readonly name: EndpointName;
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Ability that the token needs. */
  readonly ability?: string;
  /** Permission that the user needs besides. */
  readonly permission?: string;
  /** Needs a token that is scoped to at least one site. */
  readonly scoped: boolean;
  /** Counts against the limit of the tag endpoints. */
  readonly limited: boolean;
  answer(call: Call): SimReply;
}
