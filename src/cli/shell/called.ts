import { basename, delimiter, dirname } from "node:path";

/** The program as somebody can type it who typed it before: `./plenum` in a clone, `plenum` where it is installed. */
export function called({ PLENUM_CALLED: by = "plenum", PATH = "" }: NodeJS.ProcessEnv = process.env): string {
  // The shell says where it has found what it was called by its name alone.
  const isFound = PATH.split(delimiter).includes(dirname(by));
  return shellWord(isFound ? basename(by) : by);
}

/** The same for commands that a sentence names: ``Make one with `plenum init`.`` */
export function asCalled(sentence: string, program = called()): string {
  return sentence.replaceAll(/`plenum (?=[a-z])/g, () => `\`${program} `);
}

export function shellWord(text: string): string {
  return /^[\w./@:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
