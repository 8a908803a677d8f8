import { z } from "zod";

const Field = z.object({
  required: z.boolean().optional(),
  hasDefaultValue: z.boolean().optional(),
  allowedValues: z.array(z.object({ id: z.string().optional(), name: z.string().optional() })).optional(),
});

export const Transitions = z.object({
  transitions: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      to: z.object({
        name: z.string(),
        statusCategory: z.object({ key: z.string() }).optional(),
      }),
      fields: z.record(z.string(), Field).optional(),
    }),
  ),
});
type Transition = z.infer<typeof Transitions>["transitions"][number];

/** The body of the request that carries a transition out. */
export interface Step {
  readonly transition: { readonly id: string };
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** How an issue is closed; null where no transition can do it. */
export function stepToDone(
  transitions: readonly Transition[],
  done: readonly string[],
  resolution: string | undefined,
): Step | null {
  const fitting =
    done.length > 0
      ? done.flatMap((name) => transitions.filter((transition) => isNamed(transition, name)))
      : // The names are those of the account's language; the keys of categories are the same everywhere.
        transitions.filter(({ to }) => to.statusCategory?.key === "done");
  return fitting.map((transition) => stepOf(transition, resolution)).find((step) => step !== null) ?? null;
}

export function stepNamed(transitions: readonly Transition[], name: string): Step | null {
  const named = transitions.filter((transition) => isNamed(transition, name));
  return named.map((transition) => stepOf(transition, undefined)).find((step) => step !== null) ?? null;
}

function isNamed({ name, to }: Transition, wanted: string): boolean {
  return [name, to.name].some((each) => each.toLowerCase() === wanted.toLowerCase());
}

/** Null where the transition asks for something that we do not know. */
function stepOf({ id, fields = {} }: Transition, wanted: string | undefined): Step | null {
  const unknown = Object.entries(fields).some(
    ([name, field]) => name !== "resolution" && field.required === true && field.hasDefaultValue !== true,
  );
  if (unknown) return null;
  const { resolution } = fields;
  if (resolution === undefined) return { transition: { id } };
  if (wanted !== undefined) return { transition: { id }, fields: { resolution: { name: wanted } } };
  if (resolution.required !== true) return { transition: { id } };
  const [first] = resolution.allowedValues ?? [];
  if (first?.id === undefined) return null;
  return { transition: { id }, fields: { resolution: { id: first.id } } };
}
