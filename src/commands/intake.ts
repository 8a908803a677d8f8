import type { TagScalar } from "../building.ts";
import { isoUtc } from "../clock.ts";
import type { Accept, Arrival } from "../connector.ts";
import type { BuildingView } from "./building-view.ts";
import type { Command } from "./command.ts";
import type { AllowedTag, CommandsConfig } from "./config.ts";
import { checkArrival, type Refusing } from "./gate.ts";
import type { Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { type Parsed, parsePayload, type Request } from "./payload.ts";

/**
 * The first half of a command's way: from its arrival until it is durable. It either ends in a refusal that is
 * told and audited, or in the journal as `accepted`. Nothing here waits for the service, because the broker is
 * acknowledged only when this has returned.
 */
export interface IntakeOptions {
  readonly config: CommandsConfig;
  readonly sourceNames: readonly string[];
  readonly view: BuildingView;
  readonly journal: Journal;
  readonly killSwitch: KillSwitch;
  /** Takes the accepted commands further. */
  readonly dispatch: (accepted: AcceptedCommand) => void;
  readonly onRefused?: (reason: string) => void;
}

export interface AcceptedCommand {
  readonly command: Command;
  readonly entry: AllowedTag;
  readonly expect: TagScalar | null;
}

export function createIntake(options: IntakeOptions): Accept {
  const { config, journal } = options;

  async function refuse(
    arrival: Arrival,
    request: Partial<Request> & { id: string },
    why: Refusing,
  ): Promise<void> {
    const source = resolveSource(request.source ?? arrival.source) ?? "unknown";
    options.onRefused?.(why.reason);
    await journal.refuse({
      commandId: request.id,
      source,
      siteId: entryOf(source, request.tagId ?? "")?.site_id ?? null,
      tagId: request.tagId ?? arrival.tagId,
      requested: request.value ?? null,
      outcome: why.reason === "duplicate" || why.reason === "expired" ? why.reason : "rejected",
      reason: why.reason,
      message: why.message,
      by: `${arrival.via} ${arrival.topic}`,
      replyTo: arrival.replyTo,
      correlation: arrival.correlation,
      receivedAtMs: arrival.receivedAtMs,
    });
  }

  function resolveSource(named: string | null): string | null {
    if (named !== null) return options.sourceNames.includes(named) ? named : null;
    return options.sourceNames.length === 1 ? (options.sourceNames[0] ?? null) : null;
  }

  function entryOf(source: string, tagId: string): AllowedTag | undefined {
    return config.allow.find(
      (entry) => entry.tag_id === tagId && (entry.source ?? resolveSource(null)) === source,
    );
  }

  function read(arrival: Arrival): Parsed {
    const closed = closedBecause();
    if (closed !== null) return { refused: { ...closed, id: null } };
    if (arrival.payload.byteLength > config.max_payload_bytes) {
      const message = `The message is larger than ${config.max_payload_bytes} bytes.`;
      return { refused: { reason: "too-large", message, id: null } };
    }
    return parsePayload(arrival, config.bare_values);
  }

  function closedBecause(): Refusing | null {
    if (!config.enabled) {
      return { reason: "disabled", message: "Writing is switched off (commands.enabled)." };
    }
    if (options.killSwitch.thrown()) {
      return { reason: "killed", message: `Writing is stopped; remove ${options.killSwitch.file} to go on.` };
    }
    return null;
  }

  async function acceptOne(arrival: Arrival, request: Request): Promise<void> {
    if (journal.knows(request.id)) {
      return refuse(arrival, request, { reason: "duplicate", message: "This id was used before." });
    }
    const source = resolveSource(request.source);
    const entry = source === null ? undefined : entryOf(source, request.tagId);
    const verdict = checkArrival({
      request,
      retained: arrival.retained,
      expirySeconds: arrival.expirySeconds,
      via: arrival.via,
      receivedAtMs: arrival.receivedAtMs,
      defaultTtlMs: config.default_ttl,
      maxTtlMs: config.max_ttl,
      entry,
      held: source === null ? undefined : await options.view.tag(source, request.tagId),
    });
    if ("refused" in verdict) return refuse(arrival, request, verdict.refused);
    if (source === null || entry === undefined) throw new Error("the gate let through what it does not know");
    const command: Command = {
      id: request.id,
      source,
      siteId: entry.site_id,
      tagId: request.tagId,
      value: request.value,
      by: `${arrival.via} ${arrival.topic}`,
      receivedAt: isoUtc(arrival.receivedAtMs),
      expiresAt: isoUtc(verdict.expiresAtMs),
      replyTo: arrival.replyTo,
      correlation: arrival.correlation,
    };
    const isNew = await journal.accept(command);
    if (!isNew) return refuse(arrival, request, { reason: "duplicate", message: "This id was used before." });
    options.dispatch({ command, entry, expect: request.expect });
  }

  return async (arrival) => {
    const parsed = read(arrival);
    if ("refused" in parsed) {
      const id = parsed.refused.id ?? arrival.correlation ?? `unreadable-${arrival.receivedAtMs}`;
      await refuse(arrival, { id }, parsed.refused);
      return;
    }
    for (const request of parsed.requests) await acceptOne(arrival, request);
  };
}
