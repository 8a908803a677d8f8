import { ConfigError } from "../../core/errors/errors.ts";
import { isLoopbackHost } from "../../core/http/loopback.ts";

export type ServiceAddress = ReturnType<typeof parseServiceAddress>;

/** Parses the address of the service. Throws ConfigError for a password in it, and for http:// unless allowed. */
export function parseServiceAddress(typedAddress: string, allowPlainHttp: boolean) {
  const notes: string[] = [];
  const address = typedAddress.trim();
  const hasUrlScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(address);
  const scheme = isLoopbackHost(address.replace(/[:/].*$/, "")) ? "http" : "https";
  if (!hasUrlScheme) notes.push(`The address says no ${scheme}://; that is assumed.`);
  const url = URL.parse(hasUrlScheme ? address : `${scheme}://${address}`);
  if (address === "" || url === null || !/^https?:$/.test(url.protocol) || !/^[\w.[\]:-]+$/.test(url.host))
    throw new ConfigError(`This is not the address of a service: ${address === "" ? "nothing" : address}.`, {
      hint: "Write it as https://monitoring.example.com.",
    });
  if (url.username !== "" || url.password !== "")
    throw new ConfigError("The address has a user name or a password in it.", {
      hint: "Remove it; Plenum sends only a token to the service.",
    });
  if (url.search !== "" || url.hash !== "") notes.push("What follows ? or # in the address is left out.");
  const path = url.pathname.replace(/\/+$/, "");
  const [apiSuffix = ""] = /\/api(\/v\d+(\/.*)?)?$/.exec(path) ?? [];
  if (apiSuffix !== "") notes.push(`${apiSuffix} at the end of the address is left out; it is added by itself.`);
  if (url.protocol === "http:" && !allowPlainHttp && !isLoopbackHost(url.hostname))
    throw new ConfigError(`With http:// everybody on the way to ${url.host} could read the token.`, {
      hint: "Use https://, or add --allow-plain-http in a test network.",
    });
  return { baseUrl: `${url.origin}${path.slice(0, path.length - apiSuffix.length)}`, notes };
}
