import { IANAZone } from "luxon";

// Reading and validating what a request asks for. Problems are collected in the order of the fields.

export interface Problem {
  readonly source: string;
  readonly message: string;
}

/** Tags of one request at most: interface, Limits. */
export const MAX_TAGS = 20;

export interface Query {
  readonly problems: Problem[];
  text(name: string): string | undefined;
  required(name: string): string | undefined;
  integer(name: string): number | undefined;
  boolean(name: string): boolean | undefined;
  oneOf<T extends string>(name: string, choices: readonly T[]): T | undefined;
  /** The distinct ids of the required list `tags`. */
  tagIds(): string[];
  utc(name: string): number | undefined;
  zone(name: string): string | undefined;
  refuse(source: string, message: string): void;
}

export function requiredMessage(name: string): string {
  return `The ${name.replaceAll("_", " ")} field is required.`;
}

const UTC_TIMESTAMP = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z$/;

export function readQuery(parameters: URLSearchParams): Query {
  const problems: Problem[] = [];

  function refuse(source: string, message: string) {
    problems.push({ source, message });
  }

  function text(name: string): string | undefined {
    const value = parameters.get(name);
    return value === null || value === "" ? undefined : value;
  }

  function required(name: string): string | undefined {
    const value = text(name);
    if (value === undefined) refuse(name, requiredMessage(name));
    return value;
  }

  /** Refuses a value that is there but could not be understood. */
  function understood<T>(name: string, value: T | undefined, message: string): T | undefined {
    if (value === undefined && text(name) !== undefined) refuse(name, message);
    return value;
  }

  return {
    problems,
    text,
    required,
    refuse,
    integer(name) {
      const value = text(name);
      const number = value !== undefined && /^-?\d{1,15}$/.test(value) ? Number(value) : undefined;
      return understood(name, number, `The ${name.replaceAll("_", " ")} field must be an integer.`);
    },
    boolean(name) {
      const value = text(name)?.toLowerCase();
      const known =
        value === "true" || value === "1" ? true : value === "false" || value === "0" ? false : undefined;
      return understood(name, known, `The ${name.replaceAll("_", " ")} field must be true or false.`);
    },
    oneOf(name, choices) {
      const value = text(name);
      const known = choices.find((choice) => choice === value);
      return understood(name, known, `The selected ${name.replaceAll("_", " ")} is invalid.`);
    },
    tagIds() {
      const value = required("tags");
      if (value === undefined) return [];
      const ids = [...new Set(value.split(",").map((id) => id.trim()))].filter((id) => id !== "");
      if (ids.length === 0) refuse("tags", requiredMessage("tags"));
      if (ids.length > MAX_TAGS) refuse("tags", `The tags field must not have more than ${MAX_TAGS} items.`);
      return ids;
    },
    utc(name) {
      const value = required(name);
      if (value === undefined) return undefined;
      const atMs = UTC_TIMESTAMP.test(value) ? Date.parse(value) : Number.NaN;
      return understood(
        name,
        Number.isNaN(atMs) ? undefined : atMs,
        `The ${name} field must be an ISO 8601 time in UTC.`,
      );
    },
    zone(name) {
      const value = required(name);
      const known = value !== undefined && isZone(value) ? value : undefined;
      return understood(name, known, `The ${name} field must be a valid timezone.`);
    },
  };
}

/** luxon remembers zones; asking Intl anew would cost more than the rest of a request. */
function isZone(name: string): boolean {
  return !/^[+-]/.test(name) && IANAZone.create(name).isValid;
}
