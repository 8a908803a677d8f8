import { defineReceiverConnector } from "../shared/receiver/sink.ts";
import { JiraConfig } from "./config.ts";

export const jira = defineReceiverConnector(
  "jira",
  "One issue in Jira for every alarm, closed when it is over.",
  JiraConfig,
  async () => (await import("./receiver.ts")).createJiraReceiver,
);
