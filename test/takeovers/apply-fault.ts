import { setTimeout as sleep } from "node:timers/promises";
import type { FaultRecord } from "./evidence.ts";
import type { Fault } from "./faults.ts";
import type { Member } from "./member.ts";
import type { Stage } from "./stage.ts";

export type AppliedFault = Omit<FaultRecord, "toMs" | "story">;

const COMMIT_WITHIN_MS = 5_000;

export async function applyFault({ database, members, observer }: Stage, fault: Fault): Promise<AppliedFault> {
  if (fault.clock !== null) members.get(fault.clock.member)?.setClock(fault.clock.aheadS);
  const member = members.get(fault.member ?? "");
  const [begin, end] = stepsOf(fault, member, database, observer);
  let fromMs = Date.now();
  await begin();
  if (fault.kind.endsWith("in-commit")) fromMs = Date.now();
  await sleep(fault.lastsMs);
  await end();
  return { kind: fault.kind, member: fault.member, fromMs, endMs: Date.now() };
}

type Step = () => unknown;

function stepsOf(
  { kind, tornAt }: Fault,
  member: Member | undefined,
  database: Stage["database"],
  observer: Stage["observer"],
): readonly [begin: Step, end: Step] {
  const heal = () => member?.way.heal();
  switch (kind) {
    case "kill":
    case "stop":
      return [() => member?.[kind](), () => member?.start()];
    case "freeze":
      return [() => member?.freeze(), () => member?.thaw()];
    case "cut":
    case "stall":
      return [() => member?.way[kind](), heal];
    case "cut-in-commit":
    case "stall-in-commit":
      return [() => faultInCommit(member, kind === "cut-in-commit" ? "cut" : "stall", tornAt), heal];
    case "drain":
      return [() => observer.drain(member?.name ?? "", true), () => observer.drain(member?.name ?? "", false)];
    case "database-restart":
    case "database-kill":
      return [() => endDatabase(database, kind), () => database.startAgain()];
  }
}

async function endDatabase(database: Stage["database"], kind: "database-restart" | "database-kill"): Promise<void> {
  if (kind === "database-kill") return database.kill();
  database.signal("SIGINT");
  await database.end();
}

async function faultInCommit(member: Member | undefined, what: "cut" | "stall", tornAt: number): Promise<void> {
  member?.way.inNextChange(what, tornAt);
  const untilMs = performance.now() + COMMIT_WITHIN_MS;
  while (member?.way.hasBegun() === false && performance.now() < untilMs) await sleep(5);
}
