import { z } from "zod";

/** A text for which `findProblem` returns null; otherwise the returned message is the error. */
export const checkedText = (findProblem: (text: string) => string | null) =>
  z.string().superRefine((text, context) => {
    const message = findProblem(text);
    if (message !== null) context.addIssue({ code: "custom", message });
  });
