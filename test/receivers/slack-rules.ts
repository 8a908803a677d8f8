type Json = Readonly<Record<string, unknown>>;

export function findBlockError(blocks: unknown, isEdit: boolean): string | null {
  if (blocks === undefined) return isEdit ? null : "[ERROR] no blocks";
  if (!Array.isArray(blocks)) return "[ERROR] blocks are no list";
  if (blocks.length === 0 || blocks.length > 50) return "[ERROR] 1 to 50 blocks";
  for (const [index, block] of blocks.entries()) {
    const complaint = findError(block as Json);
    if (complaint !== null) return `[ERROR] ${complaint} [json-pointer:/blocks/${index}]`;
  }
  return null;
}

function findError(block: Json): string | null {
  switch (block.type) {
    case "header":
      return findExtraKey(block, ["type", "text"]) ?? findTextError(block.text, 150, ["plain_text"]);
    case "section": {
      const keys = findExtraKey(block, ["type", block.fields === undefined ? "text" : "fields"]);
      if (keys !== null) return keys;
      if (block.fields === undefined) return findTextError(block.text, 3_000, ["plain_text", "mrkdwn"]);
      const fields = block.fields as readonly unknown[];
      if (fields.length < 1 || fields.length > 10) return "must have 1 to 10 fields";
      return findFirst(fields.map((field) => findTextError(field, 2_000, ["plain_text", "mrkdwn"])));
    }
    case "context": {
      const elements = block.elements as readonly unknown[];
      if (elements.length < 1 || elements.length > 10) return "must have 1 to 10 elements";
      return findFirst(elements.map((element) => findTextError(element, 3_000, ["plain_text", "mrkdwn"])));
    }
    default:
      return `unsupported type: ${String(block.type)}`;
  }
}

function findTextError(value: unknown, most: number, types: readonly string[]): string | null {
  const { type, text } = (value ?? {}) as Json;
  if (typeof type !== "string" || !types.includes(type)) return `unsupported type of text: ${String(type)}`;
  const keys = findExtraKey(value as Json, ["type", "text", type === "plain_text" ? "emoji" : "verbatim"]);
  if (keys !== null) return keys;
  if (typeof text !== "string" || text.length < 1) return "must be more than 0 characters";
  return text.length > most ? `must be less than ${most + 1} characters` : null;
}

function findExtraKey(value: Json, known: readonly string[]): string | null {
  const other = Object.keys(value).find((key) => !known.includes(key));
  return other === undefined ? null : `invalid additional property: ${other}`;
}

function findFirst(complaints: readonly (string | null)[]): string | null {
  return complaints.find((complaint) => complaint !== null) ?? null;
}

export function findMarkup(version: { readonly text: string; readonly blocks: readonly Json[] }): string[] {
  return [version.text, ...version.blocks.flatMap(listBlockTexts)].flatMap((text) =>
    [...text.matchAll(/<([^>]*)>?/g)].map(([whole]) => whole),
  );
}

export function listBlockTexts(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(listBlockTexts);
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === "text" && typeof inner === "string" ? [inner] : listBlockTexts(inner),
  );
}
