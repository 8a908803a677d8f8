/**
 * Names and texts come from other systems, and a terminal obeys some characters: escape sequences (C0, C1), and those
 * that turn the direction of what follows or are not seen at all. None of them reaches one.
 */

/** Space in another form; what it separates stays apart. */
const SPACES = /[\t-\r\u0085\u2028\u2029]/g;
const CONTROLS = /\p{Cc}/gu;
/** Direction marks, zero-width characters, tags, fillers, byte order marks: nothing that a person sees. */
const UNSEEN = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;

/** A text as one line for a person: what a terminal would obey is shown as � or left out. */
export function printable(text: string): string {
  return text.toWellFormed().replace(SPACES, " ").replace(CONTROLS, "\ufffd").replace(UNSEEN, "");
}

/** JSON text with the same value in which such characters are written as \uXXXX; JSON itself lets most of them stand. */
export function printableJson(json: string): string {
  return json.replace(/[\u007f-\u009f\u2028\u2029\p{Cf}\p{Default_Ignorable_Code_Point}]/gu, escaped);
}

/** U+E0041 takes two: "\udb40\udc41". */
function escaped(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    return `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }).join("");
}
