import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { INCIDENT_KINDS } from "../shared/receiver/config.ts";
import { createReceiverSink } from "../shared/receiver/sink.ts";
import { EmailConfig } from "./config.ts";

export const email = {
  name: "email",
  summary: "A mail for each alarm and its end, in one thread (SMTP).",
  Config: EmailConfig,
  kinds: () => INCIDENT_KINDS,
  async sink(config, context) {
    const { createEmailReceiver } = await import("./receiver.ts");
    return createReceiverSink(createEmailReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<EmailConfig>;
