//! An expression as written, before its types are checked.
use std::borrow::Cow;
use std::net::IpAddr;

/// Predicates, and how they are combined.
#[derive(Debug)]
pub(super) enum Node<'t> {
    Predicate(Predicate<'t>),
    /// Joined by `&&`.
    All(Vec<Node<'t>>),
    /// Joined by `||`.
    Any(Vec<Node<'t>>),
    Not(Box<Node<'t>>),
}

/// `field operator value`, with the functions around the field.
#[derive(Debug)]
pub(super) struct Predicate<'t> {
    /// Where it begins in the text.
    pub(super) at: usize,
    /// The name of the field.
    pub(super) field: &'t str,
    /// Whether `lower()` is around it.
    pub(super) lower: bool,
    /// Whether `any()` is around it.
    pub(super) any: bool,
    pub(super) operator: Operator,
    /// Where the value begins in the text.
    pub(super) value_at: usize,
    pub(super) value: Literal<'t>,
    /// Where it ends in the text.
    pub(super) end: usize,
}

impl Predicate<'_> {
    /// Whether a function is around the field.
    pub(super) fn has_function(&self) -> bool {
        self.lower || self.any
    }
}

/// What a field and a value are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equals,
    NotEquals,
    Regex,
    Prefix,
    Suffix,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    In,
    NotIn,
    Contains,
}

/// The value that a field is compared with.
#[derive(Debug, PartialEq)]
pub(super) enum Literal<'t> {
    Text(Cow<'t, str>),
    Integer(i64),
    Address(IpAddr),
    Network(Network),
}

/// A range of addresses, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// A network whose address has no bits behind the prefix.
    pub(super) fn new(address: IpAddr, prefix: u32) -> Result<Network, &'static str> {
        let network = Network { address, prefix };
        match (network.bits_behind(address), address) {
            (None, IpAddr::V4(_)) => Err("the prefix of an IPv4 network is at most 32"),
            (None, IpAddr::V6(_)) => Err("the prefix of an IPv6 network is at most 128"),
            (Some(0), _) => Ok(network),
            (Some(_), _) => Err("the address of a network has no bits behind its prefix"),
        }
    }

    /// The network of one address.
    pub(super) fn host(address: IpAddr) -> Network {
        Network { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether the address is in the network. An address of the other family is in none.
    pub(super) fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - self.prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The bits of an address that the prefix does not cover; none if the prefix is too long.
    fn bits_behind(self, address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shr(self.prefix).unwrap_or(0);
                (self.prefix <= 32).then(|| u128::from(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shr(self.prefix).unwrap_or(0);
                (self.prefix <= 128).then(|| address.to_bits() & mask)
            }
        }
    }
}
