import { readFileSync } from "node:fs";
import { LineCounter, parseDocument } from "yaml";
import { offsetOf } from "./place.ts";

/** Where paths of a configuration stand in its file, as `plenum.yaml:12:9`. */
export type Places = (path: readonly PropertyKey[]) => string;

/** Of a file that was loaded just now. When it is gone by now, everything is in the file as a whole. */
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
