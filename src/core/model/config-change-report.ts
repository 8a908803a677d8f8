/** One difference between the configuration in force and the changed configuration file. */
export interface ConfigChange {
  /** Path of the option, e.g. `sources.main.read.rooms.every`. */
  readonly path: string;
  /** Value in force, in the file's notation; null without a value. A secret is hidden. */
  readonly before: string | null;
  /** Value in the changed file; null if the option was removed. A secret is hidden. */
  readonly after: string | null;
  /** `alone`: the change takes effect while the worker runs. `restart`: the change waits for the next start. */
  readonly effect: "alone" | "restart";
  /** How the change takes effect, or why the change waits, as a clause for people. */
  readonly how: string;
}

/** Cause of a reload: a changed file, the signal SIGHUP, or `plenum reload`. */
export type ReloadCause = "file" | "signal" | "command";

/** The configuration was changed while the worker ran. */
export interface ConfigurationChanged {
  /** Cause of the reload: a changed file, the signal SIGHUP, or `plenum reload`. */
  readonly by: ReloadCause;
  /** Options that are in force from now on. */
  readonly changes: readonly ConfigChange[];
  /** Options that wait for a restart, including earlier changes. */
  readonly pending: readonly ConfigChange[];
}

/** Result of a reload, or of its preview. */
export interface ReloadReport {
  readonly by: ReloadCause;
  readonly at: string;
  readonly file: string;
  readonly isDryRun: boolean;
  readonly changes: readonly ConfigChange[];
  /** Options that wait for a restart, including earlier changes. */
  readonly pending: readonly ConfigChange[];
  /** Problems of an invalid file, one line each, as `plenum check` prints them; null for a valid file. */
  readonly refused: readonly string[] | null;
  /** Messages about valid options that could not be applied; a restart applies them. */
  readonly failures: readonly string[];
}

export interface ConfigurationState {
  readonly file: string;
  readonly last: ReloadReport | null;
  /** Options that wait for a restart. */
  readonly pending: readonly ConfigChange[];
  /** Problem of the current file; null while it is valid. */
  readonly refused: readonly string[] | null;
}

export function formatConfigChange({ path, before, after, effect, how }: ConfigChange): string {
  const valueChangeText =
    before === null ? `added, ${after}` : after === null ? `taken out, was ${before}` : `${before} → ${after}`;
  return `${path}: ${valueChangeText} (${effect === "restart" ? `needs a restart: ${how}` : how})`;
}

const MAX_LISTED_PROBLEMS = 3;

export function invalidConfigNotice(file: string, refused: readonly string[]): string {
  const unlistedProblemCount = refused.length - MAX_LISTED_PROBLEMS;
  const listedProblems = refused.slice(0, MAX_LISTED_PROBLEMS).join(" ");
  return `The configuration file ${file} is wrong and changes nothing; the worker goes on as before. ${listedProblems}${unlistedProblemCount > 0 ? ` And ${unlistedProblemCount} more: plenum check says them.` : ""}`;
}
