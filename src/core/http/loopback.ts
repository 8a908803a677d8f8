/** True when the host of an address is this machine. IPv6 may have brackets. */
export function isLoopbackHost(host: string): boolean {
  const hostName = host.toLowerCase().replace(/^\[|\]$/g, "");
  return (
    hostName === "localhost" ||
    hostName.endsWith(".localhost") ||
    hostName === "::1" ||
    /^127(\.\d{1,3}){3}$/.test(hostName)
  );
}
