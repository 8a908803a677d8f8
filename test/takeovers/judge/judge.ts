import type { Evidence, Verdict } from "../evidence.ts";
import { judgeBuildings } from "./building.ts";
import { judgeCommands } from "./commands.ts";
import { judgeEvents } from "./events.ts";
import { judgeHolders } from "./holders.ts";
import { judgeRequests } from "./requests.ts";

export function judge(evidence: Evidence): Verdict {
  const verdicts = [judgeHolders, judgeEvents, judgeBuildings, judgeRequests, judgeCommands].map((each) =>
    each(evidence),
  );
  return {
    problems: verdicts.flatMap(({ problems }) => problems),
    figures: verdicts.flatMap(({ figures }) => figures),
  };
}
