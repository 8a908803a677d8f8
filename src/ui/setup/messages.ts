/**
 * A sentence of the setup as its English text and what is put into it: `{tags}` stands for `values.tags`. The terminal
 * prints it in English; for the page the text is the key of its translation, as it is for the page's own sentences.
 */
export interface Message {
  readonly text: string;
  readonly values: Readonly<Record<string, string | number>>;
}

export function message(text: string, values: Message["values"] = {}): Message {
  return { text, values };
}

export function english({ text, values }: Message): string {
  return text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
