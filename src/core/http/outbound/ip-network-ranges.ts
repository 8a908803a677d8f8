import { BlockList, isIP } from "node:net";

export interface IpNetwork {
  readonly address: string;
  readonly prefix: number;
  readonly family: "ipv4" | "ipv6";
}

/** Parses a network such as `10.0.0.7/32`; null for a text without a prefix length and other invalid texts. */
export function parseIpNetwork(text: string): IpNetwork | null {
  const cidrMatch = /^([0-9a-fA-F.:]+)\/(\d{1,3})$/.exec(text);
  const address = cidrMatch?.[1] ?? "";
  const prefixLength = Number(cidrMatch?.[2]);
  const ipVersion = isIP(address);
  if (ipVersion === 0 || prefixLength > (ipVersion === 4 ? 32 : 128)) return null;
  return { address, prefix: prefixLength, family: ipVersion === 4 ? "ipv4" : "ipv6" };
}

/** Networks in the special-purpose registries of IANA. The only public IPv6 network is 2000::/3. */
const NON_PUBLIC_IP_NETWORKS: readonly string[] = [
  "0.0.0.0/8", // this network
  "10.0.0.0/8", // private
  "100.64.0.0/10", // carrier-grade NAT
  "127.0.0.0/8", // loopback
  "169.254.0.0/16", // link-local, and the metadata service of clouds
  "172.16.0.0/12", // private
  "192.0.0.0/24", // protocol assignments
  "192.0.2.0/24", // documentation
  "192.88.99.0/24", // 6to4 relays
  "192.168.0.0/16", // private
  "198.18.0.0/15", // benchmarking
  "198.51.100.0/24", // documentation
  "203.0.113.0/24", // documentation
  "224.0.0.0/4", // multicast
  "240.0.0.0/4", // reserved, and broadcast
  "::/3", // all below global unicast: loopback, unspecified, IPv4-mapped and -compatible, NAT64
  "4000::/2",
  "8000::/1", // unique local, link-local, multicast
  "2001::/23", // protocol assignments: Teredo, benchmarking, ORCHID
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4
  "3fff::/20", // documentation
];

export function createIpNetworkRules(allowNetworks: readonly string[]) {
  const isConfiguredAddress = createIpNetworkMatcher(allowNetworks);
  const isNonPublicAddress = createIpNetworkMatcher(NON_PUBLIC_IP_NETWORKS);
  return {
    isAllowed: isConfiguredAddress,
    /** True for public and allowed addresses; false for a text that is no address. */
    isPublicOrAllowed: (address: string) =>
      isIP(address) !== 0 && (isConfiguredAddress(address) || !isNonPublicAddress(address)),
  };
}

/** One list per IP version, because a common list would search all IPv6 networks for an IPv4 address. */
function createIpNetworkMatcher(networks: readonly string[]): (address: string) => boolean {
  const blockLists = { ipv4: new BlockList(), ipv6: new BlockList() };
  for (const ipNetworkText of networks) {
    const network = parseIpNetwork(ipNetworkText);
    if (network !== null) blockLists[network.family].addSubnet(network.address, network.prefix, network.family);
  }
  return (address) => {
    const ipVersion = isIP(address);
    if (ipVersion === 0) return false;
    return ipVersion === 4 ? blockLists.ipv4.check(address, "ipv4") : blockLists.ipv6.check(address, "ipv6");
  };
}
