//! Ranges of addresses.
use std::net::IpAddr;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Parses `10.0.0.0/8` or one address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
        (prefix <= bits).then_some(Self { address, prefix })
    }

    pub(super) fn holds(&self, address: IpAddr) -> bool {
        let (own, other, bits) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (u128::from(own), u128::from(other), 128),
            _ => return false,
        };
        (own ^ other).checked_shr(bits - self.prefix).unwrap_or(0) == 0
    }
}
