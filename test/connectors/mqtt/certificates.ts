import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

export interface Authority {
  readonly caFile: string;
  issue(name: string, options?: { readonly altName?: string; readonly days?: number }): Issued;
}

export interface Issued {
  readonly certFile: string;
  readonly keyFile: string;
}

export function createAuthority(folder: string, name = "ca"): Authority {
  const caFile = join(folder, `${name}.pem`);
  const caKey = join(folder, `${name}.key`);
  openssl(["req", "-x509", ...KEY, "-keyout", caKey, "-out", caFile, "-days", "2", "-subj", `/CN=${name}`]);
  return {
    caFile,
    issue(subject, { altName = "IP:127.0.0.1", days = 1 } = {}) {
      const keyFile = join(folder, `${subject}.key`);
      const request = join(folder, `${subject}.csr`);
      const certFile = join(folder, `${subject}.pem`);
      const extensions = join(folder, `${subject}.ext`);
      writeFileSync(extensions, `subjectAltName=${altName}\n`);
      openssl(["req", ...KEY, "-keyout", keyFile, "-out", request, "-subj", `/CN=${subject}`]);
      const signing = ["-CA", caFile, "-CAkey", caKey, "-CAcreateserial", "-extfile", extensions];
      openssl(["x509", "-req", "-in", request, ...signing, "-days", String(days), "-out", certFile]);
      return { certFile, keyFile };
    },
  };
}

const KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

function openssl(options: readonly string[]): void {
  execFileSync("openssl", options, { stdio: ["ignore", "ignore", "pipe"] });
}
