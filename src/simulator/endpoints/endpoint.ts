import { IANAZone } from "luxon";
import type { Token } from "../access-tokens.ts";
import type { AlarmStore } from "../alarms.ts";
import type { Devices } from "../devices.ts";
import type { EndpointName } from "../fault-plan.ts";
import type { SimulatorOptions } from "../options.ts";
import type { InvalidField, SimReply, SimRequest } from "../reply-bodies.ts";
import type { RequestLog } from "../request-log.ts";
import type { Inventory } from "../response-records.ts";
import type { Random } from "../seeded-random.ts";
import type { World } from "../simulated-sites.ts";
import type { Buckets, History } from "../tag-history.ts";

export interface ServiceContext {
  readonly options: SimulatorOptions;
  readonly world: World;
  readonly devices: Devices;
  readonly buckets: Buckets;
  readonly history: History;
  readonly alarms: AlarmStore;
  readonly inventory: Inventory;
  readonly random: Random;
  readonly log: RequestLog;
}

export interface ApiCall {
  readonly context: ServiceContext;
  readonly request: SimRequest;
  readonly query: Query;
  readonly token: Token;
  readonly nowMs: number;
  readonly number: number;
}

export interface Endpoint {
  readonly name: EndpointName;
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly ability?: string;
  readonly permission?: string;
  /** The token needs no site. */
  readonly unscoped?: true;
  /** The rate limit of the tag endpoints applies. */
  readonly limited?: true;
  respond(call: ApiCall): SimReply;
}

export const MAX_TAGS = 20;

const UTC_TIMESTAMP = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z$/;

export const requiredMessage = (name: string): string => `The ${replaceUnderscores(name)} field is required.`;

export type Query = ReturnType<typeof readQuery>;

/** Parses query parameters. Collects the invalid ones in the order of the calls. */
export function readQuery(parameters: URLSearchParams) {
  const invalidFields: InvalidField[] = [];

  function reject(source: string, message: string): void {
    invalidFields.push({ source, message });
  }

  function readText(name: string): string | undefined {
    return parameters.get(name) || undefined;
  }

  function requireText(name: string): string | undefined {
    const value = readText(name);
    if (value === undefined) reject(name, requiredMessage(name));
    return value;
  }

  /** Rejects a parameter that is present but could not be parsed. */
  function rejectUnparsed<T>(name: string, value: T | undefined, message: string): T | undefined {
    if (value === undefined && readText(name) !== undefined) reject(name, message);
    return value;
  }

  return {
    invalid: invalidFields,
    text: readText,
    required: requireText,
    reject,
    integer(name: string): number | undefined {
      const value = readText(name);
      const number = value !== undefined && /^-?\d{1,15}$/.test(value) ? Number(value) : undefined;
      return rejectUnparsed(name, number, `The ${replaceUnderscores(name)} field must be an integer.`);
    },
    boolean(name: string): boolean | undefined {
      const value = readText(name)?.toLowerCase();
      const isTrueText = value === "true" || value === "1";
      const booleanValue = isTrueText ? true : value === "false" || value === "0" ? false : undefined;
      return rejectUnparsed(name, booleanValue, `The ${replaceUnderscores(name)} field must be true or false.`);
    },
    oneOf<T extends string>(name: string, choices: readonly T[]): T | undefined {
      const knownChoice = choices.find((choice) => choice === readText(name));
      return rejectUnparsed(name, knownChoice, `The selected ${replaceUnderscores(name)} is invalid.`);
    },
    tagIds(): string[] {
      const value = requireText("tags");
      if (value === undefined) return [];
      const ids = [...new Set(value.split(",").map((id) => id.trim()))].filter((id) => id !== "");
      if (ids.length === 0) reject("tags", requiredMessage("tags"));
      if (ids.length > MAX_TAGS) reject("tags", `The tags field must not have more than ${MAX_TAGS} items.`);
      return ids;
    },
    utc(name: string): number | undefined {
      const value = requireText(name) ?? "";
      const atMs = UTC_TIMESTAMP.test(value) ? Date.parse(value) : Number.NaN;
      const timeMs = Number.isNaN(atMs) ? undefined : atMs;
      return rejectUnparsed(name, timeMs, `The ${name} field must be an ISO 8601 time in UTC.`);
    },
    zone(name: string): string | undefined {
      const value = requireText(name);
      const knownZone = value !== undefined && isTimeZone(value) ? value : undefined;
      return rejectUnparsed(name, knownZone, `The ${name} field must be a valid timezone.`);
    },
  };
}

const replaceUnderscores = (name: string): string => name.replaceAll("_", " ");

/** luxon caches zones; a new Intl formatter is slower than the rest of a request. */
const isTimeZone = (name: string): boolean => !/^[+-]/.test(name) && IANAZone.create(name).isValid;
