import { isMap, parseDocument } from "yaml";
import { PostgresState } from "../../engine/store/config.ts";
import { interpolate } from "./interpolate.ts";

/** Location of the state in a configuration that may be invalid elsewhere. */
export interface LenientState {
  /** Null where it is not said, or depends on a variable that is not set. */
  readonly folder: string | null;
  readonly isFleet: boolean;
  /** Null without a fleet, and where the section is wrong. */
  readonly postgres: PostgresState | null;
}

const UNKNOWN: LenientState = { folder: null, isFleet: false, postgres: null };

/** Reads the section `state` alone. Never throws: a control must not fail because of the rest of the file. */
export function lenientState(text: string, environment: Readonly<Record<string, string | undefined>>): LenientState {
  try {
    const document = parseDocument(text, { version: "1.2", prettyErrors: false });
    const { problems } = interpolate(document, environment);
    const unset = problems.map(({ path }) => path.map(String).join("."));
    const node: unknown = isMap(document.contents) ? document.get("state") : null;
    if (!isMap(node)) return UNKNOWN;
    const { folder, postgres } = node.toJS(document, { maxAliasCount: 100 }) as Readonly<
      Record<"folder" | "postgres", unknown>
    >;
    const isKnown = typeof folder === "string" && folder !== "" && !unset.includes("state.folder");
    const isSet = !unset.some((path) => path.startsWith("state.postgres"));
    const parsed = PostgresState.safeParse(postgres);
    return {
      folder: isKnown ? folder : null,
      isFleet: node.has("postgres"),
      postgres: isSet && parsed.success ? parsed.data : null,
    };
  } catch {
    return UNKNOWN;
  }
}
