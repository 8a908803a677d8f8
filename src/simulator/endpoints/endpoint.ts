import { IANAZone } from "luxon";
import type { AccessToken } from "../access-tokens.ts";
import type { AlarmStore } from "../alarms.ts";
import type { SimulatedInventory } from "../build-response-records.ts";
import type { Devices } from "../devices.ts";
import type { ApiEndpointName } from "../fault-plan.ts";
import type { SimulatorOptions } from "../options.ts";
import type { InvalidRequestField, ServiceReply, ServiceRequest } from "../reply-bodies.ts";
import type { RequestLog } from "../request-log.ts";
import type { Random } from "../seeded-random.ts";
import type { SimulatedSites } from "../simulated-sites.ts";
import type { HistoryBuckets, TagHistory } from "../tag-history.ts";

export interface SimulatedServiceContext {
  readonly options: SimulatorOptions;
  readonly world: SimulatedSites;
  readonly devices: Devices;
  readonly buckets: HistoryBuckets;
  readonly history: TagHistory;
  readonly alarms: AlarmStore;
  readonly inventory: SimulatedInventory;
  readonly random: Random;
  readonly log: RequestLog;
}

export interface ApiCall {
  readonly context: SimulatedServiceContext;
  readonly request: ServiceRequest;
  readonly query: QueryParameterReader;
  readonly token: AccessToken;
  readonly nowMs: number;
  readonly number: number;
}

export interface Endpoint {
  readonly name: ApiEndpointName;
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly ability?: string;
  readonly permission?: AccessToken["permissions"][number];
  /** True if tokens without access to any site may use the endpoint. */
  readonly needsNoSite?: true;
  /** True if the rate limit of the tag endpoints applies. */
  readonly limited?: true;
  respond(call: ApiCall): ServiceReply;
}

export const MAX_TAGS_PER_REQUEST = 20;

const UTC_TIMESTAMP_PATTERN = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z$/;

export const requiredFieldMessage = (name: string): string => `The ${replaceUnderscores(name)} field is required.`;

export type QueryParameterReader = ReturnType<typeof createQueryParameterReader>;

/** Parses query parameters and collects the invalid parameters. */
export function createQueryParameterReader(parameters: URLSearchParams) {
  const invalidFields: InvalidRequestField[] = [];

  function rejectField(source: string, message: string): void {
    invalidFields.push({ source, message });
  }

  function readTextParameter(name: string): string | undefined {
    return parameters.get(name) || undefined;
  }

  function requireTextParameter(name: string): string | undefined {
    const value = readTextParameter(name);
    if (value === undefined) rejectField(name, requiredFieldMessage(name));
    return value;
  }

  function rejectUnparsedField<T>(name: string, value: T | undefined, message: string): T | undefined {
    if (value === undefined && readTextParameter(name) !== undefined) rejectField(name, message);
    return value;
  }

  return {
    invalidFields,
    readText: readTextParameter,
    requireText: requireTextParameter,
    rejectField,
    readInteger(name: string): number | undefined {
      const value = readTextParameter(name);
      const integerValue = value !== undefined && /^-?\d{1,15}$/.test(value) ? Number(value) : undefined;
      return rejectUnparsedField(name, integerValue, `The ${replaceUnderscores(name)} field must be an integer.`);
    },
    readBoolean(name: string): boolean | undefined {
      const value = readTextParameter(name)?.toLowerCase();
      const isTrueText = value === "true" || value === "1";
      const booleanValue = isTrueText ? true : value === "false" || value === "0" ? false : undefined;
      return rejectUnparsedField(name, booleanValue, `The ${replaceUnderscores(name)} field must be true or false.`);
    },
    readChoice<T extends string>(name: string, choices: readonly T[]): T | undefined {
      const validChoice = choices.find((choice) => choice === readTextParameter(name));
      return rejectUnparsedField(name, validChoice, `The selected ${replaceUnderscores(name)} is invalid.`);
    },
    readTagIds(): string[] {
      const value = requireTextParameter("tags");
      if (value === undefined) return [];
      const ids = [...new Set(value.split(",").map((id) => id.trim()))].filter((id) => id !== "");
      if (ids.length === 0) rejectField("tags", requiredFieldMessage("tags"));
      if (ids.length > MAX_TAGS_PER_REQUEST)
        rejectField("tags", `The tags field must not have more than ${MAX_TAGS_PER_REQUEST} items.`);
      return ids;
    },
    readUtcMs(name: string): number | undefined {
      const value = requireTextParameter(name) ?? "";
      const atMs = UTC_TIMESTAMP_PATTERN.test(value) ? Date.parse(value) : Number.NaN;
      const utcTimeMs = Number.isNaN(atMs) ? undefined : atMs;
      return rejectUnparsedField(name, utcTimeMs, `The ${name} field must be an ISO 8601 time in UTC.`);
    },
    readTimeZone(name: string): string | undefined {
      const value = requireTextParameter(name);
      const knownTimeZone = value !== undefined && isTimeZoneName(value) ? value : undefined;
      return rejectUnparsedField(name, knownTimeZone, `The ${name} field must be a valid timezone.`);
    },
  };
}

const replaceUnderscores = (name: string): string => name.replaceAll("_", " ");

/** Uses luxon, which caches time zones; Intl.DateTimeFormat would be too slow. */
const isTimeZoneName = (name: string): boolean => !/^[+-]/.test(name) && IANAZone.create(name).isValid;
