//! ip-restriction over exchanges in memory.

use super::*;
use crate::PLUGINS;
use serde_json::json;
use std::net::Ipv4Addr;
use weir_plugin::testing::{Gateway, check_cases, run};

#[test]
fn cases() {
    check_cases(PLUGINS, "ip-restriction", include_str!("cases.json"));
}

fn addresses(list: &[&str]) -> Addresses {
    Addresses::of(&list.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
}

#[test]
fn ranges_hold_their_addresses_and_no_others() {
    let table: [(&[&str], &[&str], &[&str]); 8] = [
        (
            &["10.0.0.0/8"],
            &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
            &["9.255.255.255", "11.0.0.0", "::10.0.0.1"],
        ),
        (&["10.1.2.3/8"], &["10.0.0.0"], &["11.0.0.0"]),
        (&["192.0.2.7"], &["192.0.2.7"], &["192.0.2.6", "192.0.2.8"]),
        (&["0.0.0.0/0"], &["0.0.0.0", "255.255.255.255"], &["::", "2001:db8::1"]),
        (&["::/0"], &["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], &["1.2.3.4"]),
        (&["2001:db8::/33"], &["2001:db8::1", "2001:db8:7fff::"], &["2001:db8:8000::"]),
        (&["::ffff:10.0.0.0/104"], &["10.1.1.1"], &["11.0.0.0", "::ffff:0:1:2"]),
        (
            &["10.0.2.0/24", "10.0.0.0/23", "10.0.0.7", "::1", "fe80::/10", "10.0.4.0/24"],
            &["10.0.0.0", "10.0.1.255", "10.0.2.255", "10.0.4.1", "::1", "fe80::5"],
            &["10.0.3.0", "10.0.5.0", "::2", "fec0::"],
        ),
    ];
    for (list, inside, outside) in table {
        let addresses = addresses(list);
        let holds = |text: &&str| addresses.hold(text.parse().unwrap());
        assert!(inside.iter().all(holds), "{list:?} {inside:?}");
        assert!(!outside.iter().any(holds), "{list:?} {outside:?}");
    }
}

#[test]
fn clients_pass_by_their_addresses_over_http_and_in_sessions() {
    let gateway = Gateway::new(PLUGINS);
    for (config, client, passes) in [
        (json!({ "allow": ["10.0.0.0/8"] }), "10.1.2.3", true),
        (json!({ "allow": ["10.0.0.0/8"] }), "2001:db8::1", false),
        (json!({ "allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"] }), "10.1.2.3", false),
        (json!({ "allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"] }), "10.2.2.3", true),
        (json!({ "allow": [], "deny": ["10.1.0.0/16"] }), "192.0.2.1", true),
    ] {
        let plugin = gateway.plugin("ip-restriction", config.clone()).unwrap();
        let mut exchange = gateway.exchange("GET /");
        exchange.client_ip = client.parse().unwrap();
        assert_eq!(run(&[&*plugin], exchange).status(), if passes { 200 } else { 403 }, "{config} {client}");
        let peer = std::net::SocketAddr::new(client.parse().unwrap(), 5);
        let admission = plugin.preread(&Session::new(peer, peer));
        assert_eq!(admission == Admission::Admit, passes, "{config} {client}");
    }
}

proptest::proptest! {
    /// Compared with the definition: an address is in a range if their first bits are the same.
    #[test]
    fn ranges_hold_what_begins_alike(
        ranges in proptest::collection::vec((proptest::prelude::any::<[u8; 4]>(), 0u32..=32), 0..8),
        address in proptest::prelude::any::<[u8; 4]>(),
        near in 0usize..8,
    ) {
        let bits = |octets: [u8; 4]| u64::from(u32::from_be_bytes(octets));
        // A random address is in hardly any range, so one that begins like a range is tested, too.
        let beside = ranges.get(near).map_or(address, |(first, _)| [first[0], first[1], address[2], address[3]]);
        let list: Vec<_> =
            ranges.iter().map(|(octets, prefix)| format!("{}/{prefix}", Ipv4Addr::from(*octets))).collect();
        let addresses = Addresses::of(&list);
        for asked in [address, beside] {
            let same = |(first, prefix): &([u8; 4], u32)| bits(*first) >> (32 - prefix) == bits(asked) >> (32 - prefix);
            proptest::prop_assert_eq!(addresses.hold(IpAddr::from(asked)), ranges.iter().any(same));
        }
    }
}
