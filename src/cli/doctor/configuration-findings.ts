import { readFileSync } from "node:fs";
import { parseDocument } from "yaml";
import { Config } from "../../app/config/config.ts";
import { ConfigurationError } from "../../app/config/config-problems.ts";
import { findSecrets } from "../../app/config/contradictory-options.ts";
import { loadYamlConfig } from "../../app/config/load.ts";
import { errorText } from "../../core/errors/errors.ts";
import { type ProcessEnv, readSecret, type SecretRef } from "../../core/runtime/secret.ts";
import { registerSecret } from "../../core/values/secret-masking.ts";
import { valueOr } from "../../core/values/value-or.ts";
import { MASKED_TEXT, maskConfig } from "./mask-config.ts";

export type ConfigurationFindings = ReturnType<typeof inspectConfiguration>["findings"];

/** Number of first bytes of an unusable secret file that `plenum doctor` masks in its report. */
const MAX_MASKED_SECRET_BYTES = 4_096;

export function inspectConfiguration(file: string, environment: ProcessEnv) {
  const yamlContent = readYamlContent(file);
  const secretProblems = findSecrets(yamlContent, []).flatMap(({ secretRef }) =>
    describeSecretProblem(secretRef, environment),
  );
  const maskedConfig = maskConfig(yamlContent, environment);
  for (const text of maskedConfig.maskedTexts) registerSecret(text);
  const commonFindings = { file, secrets: secretProblems, content: maskedConfig.content };
  try {
    const config = loadYamlConfig({ schema: Config, file, environment });
    return { findings: { ...commonFindings, found: "good" as const, problems: [] }, config };
  } catch (error) {
    const fileProblem = classifyConfigError(error);
    return { findings: { ...commonFindings, found: fileProblem, problems: listConfigProblems(error) }, config: null };
  }
}

/** Returns the content of the configuration file, without replacing variables; null if the file is no YAML. */
function readYamlContent(file: string): unknown {
  return valueOr(() => {
    const yamlDocument = parseDocument(readFileSync(file, "utf8"), { version: "1.2", prettyErrors: false });
    return yamlDocument.errors.length > 0 ? null : yamlDocument.toJS({ maxAliasCount: 100 });
  }, null);
}

function classifyConfigError(error: unknown) {
  if (error instanceof ConfigurationError) return "wrong";
  const { code } = (error as { readonly cause?: NodeJS.ErrnoException }).cause ?? {};
  return code === "ENOENT" ? "missing" : "unreadable";
}

function listConfigProblems(error: unknown): readonly string[] {
  if (!(error instanceof ConfigurationError)) return [errorText(error)];
  return error.problems.map(({ line, column, path, message }) => {
    // A YAML syntax error quotes the text, which may be a password.
    const maskedMessage = path === "" ? message.replace(/["'`*&].*$/s, MASKED_TEXT) : message;
    return `line ${line}, column ${column}${path === "" ? "" : `, ${path}`}: ${maskedMessage}`;
  });
}

/** Returns the problem with a secret, or no text. Reading the secret also registers it for masking. */
function describeSecretProblem(reference: SecretRef, environment: ProcessEnv): readonly string[] {
  try {
    readSecret(reference, environment);
    return [];
  } catch (error) {
    if ("file" in reference) {
      // A file that cannot be read needs no masking.
      const secretText = valueOr(() => readFileSync(reference.file, "utf8"), "");
      registerSecret(secretText.slice(0, MAX_MASKED_SECRET_BYTES).trim());
    }
    return [errorText(error)];
  }
}
