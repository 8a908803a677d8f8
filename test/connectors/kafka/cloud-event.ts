export function cloudEventOf(headers: Readonly<Record<string, string>>, value: string): { readonly id: string } {
  const { "content-type": datacontenttype, ...attributes } = headers;
  const event = Object.fromEntries(
    Object.entries(attributes).map(([name, text]) => [
      name.replace(/^ce_/, ""),
      name === "ce_snapshot" ? text === "true" : text,
    ]),
  );
  return { id: "", ...event, datacontenttype, data: JSON.parse(value) as unknown } as { readonly id: string };
}
