//! The order of Kong's flavor `traditional`. Its paths do not have priorities of their own: a route is ordered as a whole.
use super::priority::{Part, Share, has_plain_hosts, is_present};
use weir_model::entity::Route;

/// Longer prefixes are equal.
const MAX_LENGTH: usize = 0x7FF;
const MAX_HEADERS: usize = 255;

/// The parts of a route's priority, the most important first.
pub(super) fn shares(route: &Route) -> [Share; 8] {
    let headers = route.headers.as_ref().map_or(0, |headers| headers.len()).min(MAX_HEADERS);
    let kinds = [
        is_present(&route.hosts),
        headers > 0,
        is_present(&route.paths),
        is_present(&route.methods),
        is_present(&route.snis),
    ];
    let hosts = route.hosts.iter().flatten();
    let ported = hosts.into_iter().any(|host| host.contains('*') && host.contains(':'));
    let is_regex = |path: &&String| path.starts_with('~');
    let regex = route.paths.iter().flatten().any(|path| is_regex(&path));
    let prefixes = route.paths.iter().flatten().filter(|path| !is_regex(path));
    let length = prefixes.map(String::len).max().unwrap_or_default().min(MAX_LENGTH);
    let kind_bits = kinds.iter().fold(0, |bits, kind| bits << 1 | u64::from(*kind));
    let priority = route.regex_priority.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let ordered = if regex { priority as u32 ^ 1 << 31 } else { 0 };
    let share = |part, value: i64, bits: u64, at: u32| Share { part, value, bits: bits << at };
    let flag = |part, set: bool, at| share(part, set.into(), set.into(), at);
    let count = kind_bits.count_ones();
    [
        share(Part::Criteria, count.into(), count.into(), 61),
        share(Part::Kinds, kind_bits as i64, kind_bits, 54),
        flag(Part::WildcardPort, ported, 53),
        flag(Part::PlainHosts, has_plain_hosts(route), 52),
        flag(Part::RegexPath, regex, 51),
        share(Part::Headers, headers as i64, headers as u64, 43),
        share(Part::RegexPriority, route.regex_priority, ordered.into(), 11),
        share(Part::PathLength, length as i64, length as u64, 0),
    ]
}
