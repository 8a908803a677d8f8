import type { Command } from "commander";
import { ConfigError } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import type { CliContext } from "../shell/context.ts";
import { loneSink } from "../shell/lone-sink.ts";

/** How long opening, changing and closing the test alarm may take together, in milliseconds. */
const WITHIN_MS = 60_000;

/** What can be done to one sink; needs no running worker and touches no state. */
export function define(sink: Command, context: CliContext): void {
  sink.addHelpText("after", "\nExample:\n  plenum sink test chat");

  sink
    .command("test")
    .description("open, change and close a marked test alarm where the sink's people look")
    .argument("<sink>", "name of a sink that makes tickets, messages or pages of alarms")
    .addHelpText("after", "\nExample:\n  plenum sink test chat")
    .action((name: string) => test(context, name));
}

async function test(context: CliContext, name: string): Promise<void> {
  refuseUnverifiedTls();
  const { sinks } = context.config();
  const entry = sinks[name];
  if (entry === undefined) {
    throw new ConfigError(`There is no sink ${name}; known are: ${Object.keys(sinks).join(", ") || "none"}.`);
  }
  const sink = await loneSink(name, entry);
  try {
    if (sink?.test === undefined) {
      throw new ConfigError(`${name} takes events as they are, so there is nothing to open and close.`, {
        hint: "`plenum check` shows whether it can be reached.",
      });
    }
    const steps: string[] = [];
    const say = (line: string) => {
      steps.push(line);
      context.terminal().say(line);
    };
    await sink.test(say, AbortSignal.any([context.signal, AbortSignal.timeout(WITHIN_MS)]));
    context
      .terminal()
      .object({ sink: name, steps }, [`${name}: the test alarm was opened, changed and closed.`]);
  } finally {
    await sink?.close();
  }
}
