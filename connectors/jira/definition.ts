import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { INCIDENT_KINDS } from "../shared/receiver/config.ts";
import { createReceiverSink } from "../shared/receiver/sink.ts";
import { JiraConfig } from "./config.ts";

export const jira = {
  name: "jira",
  summary: "One issue in Jira for every alarm, closed when it is over.",
  Config: JiraConfig,
  kinds: () => INCIDENT_KINDS,
  async sink(config, context) {
    const { createJiraReceiver } = await import("./receiver.ts");
    return createReceiverSink(createJiraReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<JiraConfig>;
