import { readFileSync } from "node:fs";
import { LineCounter, parseDocument } from "yaml";
import { offsetOf } from "./place.ts";

/** Location of paths in the configuration file, as `plenum.yaml:12:9`. */
export type Places = (path: readonly PropertyKey[]) => string;

/** Locations in a file that was just loaded. When it is gone, every location is the file. */
export function placesIn(file: string): Places {
  try {
    return placesOf(file, readFileSync(file, "utf8"));
  } catch {
    return () => file;
  }
}

export function placesOf(file: string, text: string): Places {
  const lines = new LineCounter();
  const { contents } = parseDocument(text, { lineCounter: lines, version: "1.2" });
  return (path) => {
    const { line, col } = lines.linePos(offsetOf(contents, path, false));
    return `${file}:${Math.max(1, line)}:${Math.max(1, col)}`;
  };
}
