import type { Command } from "commander";
import type { FleetStatus } from "../../scale/fleet/fleet-status.ts";
import { readFleetStatus, setDraining } from "../../scale/fleet/fleet-status.ts";
import type { CliContext } from "../shell/command-context.ts";
import { useStateDatabase } from "../shell/open-worker-state.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";

const DEFAULT_PRINTED_TAKEOVERS = 10;

export function defineCommand(fleetCommand: Command, context: CliContext): void {
  fleetCommand
    .option("--takeovers <count>", "how many of the latest changes of holder", String(DEFAULT_PRINTED_TAKEOVERS))
    .addHelpText(
      "after",
      "\nExamples:\n  plenum fleet\n  plenum fleet drain plant-room-2      before its machine is patched\n  plenum fleet undrain plant-room-2",
    )
    .action((options: { readonly takeovers: string }) =>
      useStateDatabase(context.config(), async (database) => {
        const fleetStatus = await readFleetStatus(database, null, Object.keys(context.config().sources));
        printFleetStatus(context, fleetStatus, Number(options.takeovers) || 0);
      }),
    );
  const addDrainCommand = (name: string, description: string, isDraining: boolean) =>
    fleetCommand
      .command(name)
      .description(description)
      .argument("<member>", "name of a member, as `plenum fleet` shows it")
      .addHelpText("after", `\nExample:\n  plenum fleet ${name} plant-room-2`)
      .action((member: string) => changeMemberDraining(context, member, isDraining));
  addDrainCommand("drain", "make a member hand over all its sources, and take none until it is undrained", true);
  addDrainCommand("undrain", "let a drained member take its share of the sources again", false);
}

async function changeMemberDraining(context: CliContext, member: string, isDraining: boolean): Promise<void> {
  const sources = Object.keys(context.config().sources);
  const { members } = await useStateDatabase(context.config(), async (database) => {
    await setDraining(database, member, isDraining);
    return readFleetStatus(database, null, sources);
  });
  const isLastRunningMember = isDraining && !members.some(({ name, state }) => name !== member && state === "alive");
  const lastMemberWarning = "! No other member runs: nothing is polled until one is started, or this one undrained.";
  const drainingEffectText = isDraining
    ? `${member} hands its sources over, one after another, and takes none until \`plenum fleet undrain ${member}\`; \`plenum fleet\` shows how far it is.`
    : `${member} takes its share of the sources again.`;
  const change = { member, draining: isDraining, lastOne: isLastRunningMember };
  context.terminal().print(change, omitMissingLines(isLastRunningMember && lastMemberWarning, drainingEffectText));
}

function printFleetStatus(context: CliContext, status: FleetStatus, maxTakeovers: number) {
  const terminal = context.terminal();
  const latestTakeovers = status.takeovers.slice(0, maxTakeovers);
  if (terminal.json) return terminal.print({ ...status, takeovers: latestTakeovers }, []);
  const { database } = status;
  if (database !== null) {
    const { bytes, doubts, name, server } = database;
    terminal.printText([
      `${name}: ${server}, ${(bytes / 1024 ** 2).toFixed(0)} MiB`,
      ...doubts.map((warning) => `! ${warning}`),
      "",
    ]);
  }
  terminal.printRows(status.members, {
    member: "name",
    state: ({ state, isDraining }) => (isDraining && state !== "draining" ? `${state}, drained` : state),
    sources: "sources",
    host: "host",
    version: "version",
    page: ({ page }) => page || null,
    "last heard of": "seenAt",
    "cannot start": ({ unable }) => unable.join(", ") || null,
  });
  terminal.printText([""]);
  terminal.printRows(status.sources, {
    source: "source",
    "held by": ({ holder }) => holder ?? "none",
    since: "since",
    because: "reason",
  });
  if (latestTakeovers.length === 0) return;
  terminal.printText([""]);
  terminal.printRows(latestTakeovers, { when: "at", source: "source", from: "from", to: "to", because: "reason" });
}
