import { defineReceiverConnector } from "../shared/receiver/sink.ts";
import { EmailConfig } from "./config.ts";

export const email = defineReceiverConnector(
  "email",
  "A mail for each alarm and its end, in one thread (SMTP).",
  EmailConfig,
  async () => (await import("./receiver.ts")).createEmailReceiver,
);
