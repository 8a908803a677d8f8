/** True for names and addresses of this machine. An IPv6 address may have brackets. */
export function isLoopbackHost(host: string): boolean {
  const hostName = host.toLowerCase().replace(/^\[|\]$/g, "");
  return (
    hostName === "localhost" ||
    hostName.endsWith(".localhost") ||
    hostName === "::1" ||
    /^127(\.\d{1,3}){3}$/.test(hostName)
  );
}
