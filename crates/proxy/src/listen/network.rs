//! CIDR ranges of addresses.

use std::net::IpAddr;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Any address of the range.
    pub address: IpAddr,
    /// How many leading bits all its addresses share.
    pub prefix: u8,
}

impl Network {
    /// Whether the range holds the address. IPv4 written as IPv6 is IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address.to_canonical(), ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same_prefix(u32::from(a).into(), u32::from(b).into(), 32, self.prefix)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => same_prefix(a.into(), b.into(), 128, self.prefix),
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, bits: u32, prefix: u8) -> bool {
    let ignored = bits.saturating_sub(prefix.into());
    (a ^ b).checked_shr(ignored).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn networks_hold_their_addresses() {
        let cases = [
            ("10.0.0.0", 8, "10.255.0.1", true),
            ("10.0.0.0", 8, "11.0.0.1", false),
            ("0.0.0.0", 0, "11.0.0.1", true),
            ("0.0.0.0", 0, "::1", false),
            ("::", 0, "fe80::1", true),
            ("127.0.0.1", 32, "::ffff:127.0.0.1", true),
            ("127.0.0.1", 32, "127.0.0.2", false),
            ("fe80::", 10, "fec0::1", false),
        ];
        for (network, prefix, ip, holds) in cases {
            let network = Network { address: network.parse().unwrap(), prefix };
            assert_eq!(network.contains(ip.parse().unwrap()), holds, "{network:?} {ip}");
        }
    }
}
