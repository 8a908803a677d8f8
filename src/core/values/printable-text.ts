const LINE_BREAKS = /[\t-\r\u0085\u2028\u2029]/g;
const CONTROL_CHARS = /\p{Cc}/gu;
const INVISIBLE_CHARS = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;

/** Makes one line: line breaks become spaces, control characters become �, invisible characters are removed. */
export function printableLine(text: string): string {
  return text.toWellFormed().replace(LINE_BREAKS, " ").replace(CONTROL_CHARS, "\ufffd").replace(INVISIBLE_CHARS, "");
}

/** Escapes control and invisible characters in JSON text as \uXXXX, which keeps its value. */
export function toPrintableJson(json: string): string {
  return json.replace(/[\u007f-\u009f\u2028\u2029\p{Cf}\p{Default_Ignorable_Code_Point}]/gu, escapeCharacter);
}

/** A character above U+FFFF becomes two escapes, e.g. U+E0041: "\udb40\udc41". */
function escapeCharacter(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    return `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }).join("");
}
