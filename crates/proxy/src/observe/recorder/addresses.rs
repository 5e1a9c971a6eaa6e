//! The numbers of the upstreams' addresses that a worker has met.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use weir_analytics::entities::{Entities, Kind};

/// How many addresses a worker remembers.
const MAX_ADDRESSES: usize = 1 << 14;

/// Places of the cache. Consecutive addresses are in consecutive ones.
const CACHED: usize = 64;

/// A map from addresses to numbers, and a cache of it that is found by the address itself, without a hash.
pub(super) struct AddressNumbers {
    cache: [Cell<Option<(SocketAddr, u32)>>; CACHED],
    all: RefCell<HashMap<SocketAddr, u32, foldhash::fast::RandomState>>,
}

impl Default for AddressNumbers {
    fn default() -> Self {
        Self { cache: [const { Cell::new(None) }; CACHED], all: RefCell::default() }
    }
}

impl AddressNumbers {
    /// The number of an address.
    #[inline]
    pub(super) fn get(&self, address: SocketAddr, entities: &Entities) -> u32 {
        let place = &self.cache[place(address)];
        match place.get() {
            Some((cached, number)) if cached == address => number,
            _ => {
                let number = self.find(address, entities);
                place.set(Some((address, number)));
                number
            }
        }
    }

    /// Asks for the number of an address where this worker meets it for the first time.
    #[cold]
    fn find(&self, address: SocketAddr, entities: &Entities) -> u32 {
        let mut all = self.all.borrow_mut();
        if let Some(number) = all.get(&address) {
            return *number;
        }
        if all.len() == MAX_ADDRESSES {
            all.clear();
        }
        let number = entities.intern(Kind::Upstream, &address.to_string());
        all.insert(address, number);
        number
    }
}

/// Where the cache has an address. Targets differ in the last bits of the host or in the port.
#[inline]
fn place(address: SocketAddr) -> usize {
    let host = match address.ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    };
    (host ^ host >> 8 ^ u32::from(address.port())) as usize % CACHED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_share_a_place_have_their_own_numbers() {
        let (numbers, entities) = (AddressNumbers::default(), Entities::default());
        let address = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        assert_eq!(place(address(80)), place(address(80 + CACHED as u16)));
        for _ in 0..2 {
            for n in 0..3 * CACHED as u16 {
                assert_eq!(numbers.get(address(80 + n), &entities), u32::from(n) + 1);
            }
        }
        let long: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        assert_eq!(numbers.get(long, &entities), 3 * CACHED as u32 + 1);
        assert_eq!(numbers.get(long, &entities), 3 * CACHED as u32 + 1);
    }
}
