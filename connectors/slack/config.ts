import { z } from "zod";
import { OUTBOUND_HTTP_OPTIONS, ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { PriorityLetter, RECEIVER_OPTIONS } from "../shared/receiver/config.ts";

export const SlackConfig = z
  .strictObject({
    token: SecretRef.meta({ description: "Token of the app's bot (xoxb-…), as a secret reference." }),
    channel: z
      .string()
      .regex(
        /^[CG][A-Z0-9]{5,30}$/,
        "Write the channel's id, such as C0123ABCD, not its name; Slack shows it at the end of the channel's details.",
      )
      .meta({ description: "Id of the channel; the bot must be a member.", examples: ["C0123ABCD"] }),
    broadcast: z.array(PriorityLetter).default(["A"]).meta({
      description: "Alarm priorities whose end and return also appear in the channel, not only in the thread.",
    }),
    base_url: ReceiverUrl.refine((text) => !/[?#]/.test(text), "Write the address without `?` and `#`.")
      .default("https://slack.com")
      .meta({ description: "Address of Slack's Web API without `/api`; for a gateway in between." }),
    ...RECEIVER_OPTIONS,
    ...OUTBOUND_HTTP_OPTIONS,
  })
  .refine((config) => config.proxy === undefined || URL.parse(config.base_url)?.protocol !== "http:", {
    path: ["base_url"],
    message: "Through a proxy use https://, because the proxy would read the token and every message.",
  })
  .meta({ description: "One message for every alarm in a Slack channel, edited in place." });
export type SlackConfig = z.infer<typeof SlackConfig>;
