//! Computes the priority of a route: one number composed of its criteria.
use super::subroute::PathKind;
use super::traditional;
use weir_model::entity::Route;

const PLAIN_HOSTS: u64 = 1 << 60;
const REGEX_PATH: u64 = 1 << 51;
const MAX_HEADERS: usize = 255;
const LENGTH_MASK: u64 = 0x7FFFF;
/// Where the priority of an expression is above what criteria give.
const EXPRESSION: u64 = 0xFF << 56;

/// How routes are written and ordered: Kong's setting `router_flavor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavor {
    /// By criteria; of equal routes the one with the greater id is first.
    #[default]
    TraditionalCompatible,
    /// By criteria; of equal routes the older one is first.
    Traditional,
    /// By expressions; routes with criteria come after those with expressions.
    Expressions,
}

/// What decides the order of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// The flavor.
    pub flavor: Flavor,
    /// How the parts of a priority are combined. `Traditional` has its own way.
    pub calculation: Calculation,
}

impl Order {
    /// The priority of a route, or of the part of it that has paths of this kind.
    pub(super) fn priority(self, route: &Route, paths: PathKind) -> u64 {
        self.shares(route, paths).iter().fold(0, |priority, share| priority | share.bits)
    }

    /// The parts of its priority, the most important first.
    pub(super) fn shares(self, route: &Route, paths: PathKind) -> Vec<Share> {
        match (self.flavor, paths) {
            (_, PathKind::Expression) => expression_shares(route).to_vec(),
            (Flavor::Traditional, _) => traditional::shares(route).to_vec(),
            _ => self.calculation.shares(route, paths).to_vec(),
        }
    }
}

/// The priority of a route with an expression.
pub fn expression_priority(route: &Route) -> u64 {
    expression_shares(route).iter().fold(0, |priority, share| priority | share.bits)
}

/// The parts of the priority of a route with an expression.
fn expression_shares(route: &Route) -> [Share; 2] {
    let priority = route.priority;
    [
        Share { part: Part::Expression, value: 1, bits: EXPRESSION },
        Share { part: Part::Priority, value: priority, bits: priority as u64 & !EXPRESSION },
    ]
}

/// How the parts of a priority are combined: Kong's setting `route_match_calculation`.
///
/// The documented parts are, from the top: the number of criteria (3 bits), whether hosts have no wildcard (1), the
/// number of headers (8), whether the path is a regex (1), `regex_priority` (32), the length of the prefix (19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Calculation {
    /// What Kong 3 computes. LuaJIT shifts plain numbers in 32 bits and takes the distance modulo 32, so the
    /// number of criteria ends in bits 29 to 31 and that of headers in bits 20 to 27, below the two flags,
    /// and a negative result fills the upper half: from four criteria on, or from a `regex_priority` of
    /// 4096 on, a route is above all others.
    #[default]
    Original,
    /// What Kong documents.
    Strict,
}

impl Calculation {
    /// A number shifted to its position.
    fn place(self, value: i32, bit: u32) -> u64 {
        match self {
            Calculation::Original => i64::from(value.wrapping_shl(bit)) as u64,
            Calculation::Strict => u64::from(value as u32) << bit,
        }
    }

    /// Under `Original`, of a larger number than 32 bits the lower ones count, as LuaJIT's shifts have it. Under `Strict`,
    /// priorities order like the signed numbers, as far as 32 bits reach.
    fn place_regex_priority(self, value: i64) -> u64 {
        match self {
            Calculation::Original => self.place(value as i32, 19),
            Calculation::Strict => {
                let value = value.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                self.place(value ^ i32::MIN, 19)
            }
        }
    }

    /// The parts of its priority, in the documented order.
    fn shares(self, route: &Route, paths: PathKind) -> [Share; 6] {
        let criteria = criteria(route, paths);
        let headers = route.headers.as_ref().map_or(0, |headers| headers.len()).min(MAX_HEADERS) as i32;
        let plain = has_plain_hosts(route);
        let (regex, regex_priority) = match paths {
            PathKind::Regex => (REGEX_PATH, self.place_regex_priority(route.regex_priority)),
            PathKind::None | PathKind::Prefix(_) | PathKind::Expression => (0, 0),
        };
        let length = if let PathKind::Prefix(length) = paths { length } else { 0 };
        let share = |part, value, bits| Share { part, value, bits };
        [
            share(Part::Criteria, criteria.into(), self.place(criteria, 61)),
            share(Part::PlainHosts, plain.into(), if plain { PLAIN_HOSTS } else { 0 }),
            share(Part::Headers, headers.into(), self.place(headers, 52)),
            share(Part::RegexPath, (regex != 0).into(), regex),
            share(Part::RegexPriority, route.regex_priority, regex_priority),
            share(Part::PathLength, length.into(), u64::from(length) & LENGTH_MASK),
        ]
    }
}

/// A part of a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Whether it has an expression.
    Expression,
    /// The `priority` of a route with an expression.
    Priority,
    /// Which criteria it has, of as many: hosts are above headers, then paths, methods, SNIs.
    Kinds,
    /// Whether a host with a wildcard has a port.
    WildcardPort,
    /// How many criteria the route has.
    Criteria,
    /// Whether it has hosts, none with a wildcard.
    PlainHosts,
    /// How many headers it requires.
    Headers,
    /// Whether its path is a regex.
    RegexPath,
    /// Its `regex_priority`.
    RegexPriority,
    /// The length of its prefix.
    PathLength,
}

/// One part's share in a priority.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Which part.
    pub part: Part,
    /// The value of the part.
    pub value: i64,
    /// The value that it adds to the priority.
    pub bits: u64,
}

/// How many criteria the route has.
fn criteria(route: &Route, paths: PathKind) -> i32 {
    let present = [
        is_present(&route.sources),
        is_present(&route.destinations),
        is_present(&route.methods),
        is_present(&route.hosts),
        is_present(&route.snis),
        route.headers.as_ref().is_some_and(|headers| !headers.is_empty()),
        paths != PathKind::None,
    ];
    present.iter().map(|&present| i32::from(present)).sum()
}

pub(super) fn is_present<T>(values: &Option<Vec<T>>) -> bool {
    values.as_ref().is_some_and(|values| !values.is_empty())
}

pub(super) fn has_plain_hosts(route: &Route) -> bool {
    is_present(&route.hosts) && route.hosts.iter().flatten().all(|host| !host.contains('*'))
}
