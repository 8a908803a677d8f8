import type { FaultRecord } from "./evidence.ts";
import type { Fault } from "./faults.ts";
import type { Member } from "./member.ts";
import type { Stage } from "./stage.ts";

export type Struck = Omit<FaultRecord, "toMs" | "story">;

const COMMIT_WITHIN_MS = 5_000;
const LOOK_EVERY_MS = 5;

export async function strike(stage: Stage, fault: Fault): Promise<Struck> {
  const { clock } = fault;
  if (clock !== null) stage.members.get(clock.member)?.setClock(clock.aheadS);
  const member = stage.members.get(fault.member ?? "");
  const lasts = () => new Promise((resolve) => setTimeout(resolve, fault.lastsMs));
  const fromMs = Date.now();
  switch (fault.kind) {
    case "kill":
    case "stop":
      await member?.[fault.kind]();
      await lasts();
      await member?.start();
      break;
    case "freeze":
      member?.freeze();
      await lasts();
      member?.thaw();
      break;
    case "cut":
    case "stall":
      member?.way[fault.kind]();
      await lasts();
      member?.way.free();
      break;
    case "cut-in-commit":
    case "stall-in-commit":
      return inCommit(member, fault, lasts);
    case "drain":
      await stage.observer.drain(member?.name ?? "", true);
      await lasts();
      await stage.observer.drain(member?.name ?? "", false);
      break;
    case "database-restart":
      stage.database.signal("SIGINT");
      await stage.database.end();
      await lasts();
      await stage.database.again();
      break;
    case "database-kill":
      await stage.database.kill();
      await lasts();
      await stage.database.again();
      break;
  }
  return { kind: fault.kind, member: fault.member, fromMs, endMs: Date.now() };
}

async function inCommit(member: Member | undefined, fault: Fault, lasts: () => Promise<unknown>): Promise<Struck> {
  const way = member?.way;
  way?.inNextChange(fault.kind === "cut-in-commit" ? "cut" : "stall", fault.tornAt);
  const untilMs = performance.now() + COMMIT_WITHIN_MS;
  while (way?.hasBegun() === false && performance.now() < untilMs)
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  const fromMs = Date.now();
  await lasts();
  way?.free();
  return { kind: fault.kind, member: fault.member, fromMs, endMs: Date.now() };
}
