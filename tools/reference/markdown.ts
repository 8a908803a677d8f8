/** Escapes a text for a cell of a table. */
export function cell(text: string): string {
  return text.replaceAll("|", "\\|").replace(/\s+/g, " ").trim();
}

/** Formats a text as code, with more backticks if the text contains some. */
export function code(text: string): string {
  const runs = (text.match(/`+/g) ?? []).map(({ length }) => length);
  if (runs.length === 0) return `\`${text}\``;
  const fence = "`".repeat(Math.max(...runs) + 1);
  return `${fence} ${text} ${fence}`;
}

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map(cell).join(" | ")} |`;
  return [line(head), `|${head.map(() => "---").join("|")}|`, ...rows.map(line)].join("\n");
}

export function fenced(language: string, text: string): string {
  return `\`\`\`${language}\n${text}\n\`\`\``;
}

/** Returns GitHub's anchor of a heading. */
export function anchor(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M} _-]/gu, "")
    .replaceAll(" ", "-");
}

/** Joins the parts with empty lines. */
export function page(...parts: readonly string[]): string {
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

const WIDTH = 110;

/** Formats JSON in as few lines as fit into `WIDTH`. */
export function json(value: unknown, indent = "", before = ""): string {
  const short = spaced(value);
  if (indent.length + before.length + short.length <= WIDTH) return short;
  if (typeof value !== "object" || value === null) return short;
  const inner = `${indent}  `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const entries = Array.isArray(value)
    ? value.map((each: unknown) => json(each, inner))
    : Object.entries(value)
        .filter(([, each]) => each !== undefined)
        .map(([key, each]) => `"${key}": ${json(each, inner, `"${key}": `)}`);
  return `${open}\n${entries.map((entry) => inner + entry).join(",\n")}\n${indent}${close}`;
}

function spaced(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  if (entries.length === 0) return "{}";
  return `{ ${entries.map(([key, each]) => `${JSON.stringify(key)}: ${spaced(each)}`).join(", ")} }`;
}
