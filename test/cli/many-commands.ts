import { CommanderError } from "commander";
import { createProgram } from "#src/cli/program.ts";
import { complaint, exitCodeOf } from "#src/cli/shell/exit.ts";
import { createTerminal } from "#src/cli/shell/terminal.ts";

/**
 * A process that runs many commands one after another, as main.ts runs one, and prints what each printed and its exit
 * code: `node many-commands.ts '["tags 1", "read 2"]'`. Most of a short command's time is the start of its process. `Workplace.each` starts it.
 */
const [lines = "[]"] = process.argv.slice(2);
const write = process.stdout.write.bind(process.stdout);
const ended: { readonly code: number; readonly stdout: string; readonly stderr: string }[] = [];

for (const line of JSON.parse(lines) as readonly string[]) {
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    process[name].write = ((text: string | Uint8Array) => {
      printed[name] += String(text);
      return true;
    }) as typeof process.stdout.write;
  let code = 0;
  try {
    await createProgram(new AbortController().signal, {}).parseAsync(line.split(" "), { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError) || error.name === "InvalidArgumentError")
      createTerminal({ json: false }).say(...complaint(error));
    code = exitCodeOf(error);
  }
  ended.push({ code, ...printed });
}
// A pipe takes only so much at once.
write(JSON.stringify(ended), () => process.exit());
