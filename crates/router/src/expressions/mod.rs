//! The expression language of Kong's flavor `expressions`: `http.path ^= "/a" && http.method == "GET"`.
//!
//! ```text
//! text ─► parser.rs ─► ast.rs ─► types (field.rs, check.rs) ─► Node
//!                                                              ├► index.rs: what the router looks up
//!                                                              └► program.rs: evaluated on a subject (evaluate.rs, subject.rs)
//! ```
//! `docs/expressions.md` describes the language.
mod ast;
mod check;
mod error;
mod evaluate;
mod explain;
mod field;
mod hints;
mod index;
mod literal;
mod parser;
mod port;
mod program;
mod queries;
mod subject;
#[cfg(test)]
mod tests;

pub use error::ExpressionError;
pub(crate) use explain::deciding;
pub use explain::{DecidingPredicate, FieldValue};
pub use hints::warnings;
pub(crate) use index::Indexed;
pub(crate) use port::PortCheck;
pub use subject::Connection;
pub(crate) use subject::Request;

use crate::Scheme;
use crate::pattern::{Captures, Patterns};
use crate::priority::Flavor;
use ast::{Operator, Predicate};
use check::{Check, TYPE_MISMATCH, TextCheck};
use evaluate::{Groups, MatchedPath};
use field::{Field, NoField};
use program::Program;
use weir_model::entity::{Protocol, Route};

/// What the errors of expressions begin with in Kong's Admin API.
pub const ERROR_PREFIX: &str = "Router Expression failed validation";

/// Which fields there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Those of a request, and those of its connection.
    Http,
    /// Those of a connection.
    Stream,
}

impl Layer {
    fn of(route: &Route) -> Layer {
        let is_stream = route.protocols.iter().any(|protocol| protocol.is_stream());
        if is_stream { Layer::Stream } else { Layer::Http }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    /// Whether it has a regex with groups.
    has_groups: bool,
}

/// Tests, and how they are combined.
#[derive(Debug)]
enum Node {
    Test(Test),
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
}

/// A predicate whose types agree.
#[derive(Debug)]
struct Test {
    field: Field,
    lower: bool,
    any: bool,
    check: Check,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn compile(text: &str, layer: Layer, patterns: &mut Patterns) -> Result<Expression, ExpressionError> {
        Expression::indexed(text, layer, patterns).map(|(expression, _)| expression)
    }

    /// Compiles an expression, and says by what the index finds it.
    fn indexed(
        text: &str,
        layer: Layer,
        patterns: &mut Patterns,
    ) -> Result<(Expression, Indexed), ExpressionError> {
        let parsed = parser::parse(text)?;
        let mut compiler = Compiler::new(text, layer, patterns);
        let root = compiler.node(&parsed)?;
        let (indexed, [guaranteed, rest]) = index::split(root);
        let expression =
            Expression { program: Program::new(guaranteed, rest), has_groups: compiler.has_groups };
        Ok((expression, indexed))
    }

    /// The expression of a route, if it has one.
    ///
    /// # Errors
    /// What Kong's Admin API says of it, and where.
    pub fn of_route(
        route: &Route,
        flavor: Flavor,
        patterns: &mut Patterns,
    ) -> Result<Option<Expression>, String> {
        let indexed = Expression::indexed_of_route(route, flavor, patterns)?;
        Ok(indexed.map(|(expression, _)| expression))
    }

    /// The expression of a route, if it has one, and by what the index finds it.
    pub(crate) fn indexed_of_route(
        route: &Route,
        flavor: Flavor,
        patterns: &mut Patterns,
    ) -> Result<Option<(Expression, Indexed)>, String> {
        let Some(text) = &route.expression else { return Ok(None) };
        if flavor != Flavor::Expressions {
            return Err(
                "unknown field `expression`; it needs the setting `router_flavor = expressions`".to_owned()
            );
        }
        let compiled = Expression::indexed(text, Layer::of(route), patterns);
        compiled.map(Some).map_err(|error| format!("{ERROR_PREFIX}: {error}"))
    }

    /// Whether a connection of a stream matches.
    pub fn matches(&self, connection: &Connection<'_>) -> bool {
        self.program.holds(connection, &mut MatchedPath::default())
    }

    /// Whether a request matches.
    pub(crate) fn matches_request(&self, request: &Request<'_>) -> bool {
        self.program.holds(request, &mut MatchedPath::default())
    }

    /// Whether a request that the index has found matches, and if so how many bytes of its path, if the evaluation says.
    pub(crate) fn find(&self, request: &Request<'_>) -> Option<Option<usize>> {
        let mut matched = MatchedPath::default();
        self.program.rest_holds(request, &mut matched).then_some(matched.0)
    }

    /// Whether every request that the index finds matches.
    pub(crate) fn is_indexed(&self) -> bool {
        self.program.is_indexed()
    }

    /// What the groups of its regexes captured.
    pub(crate) fn captures(&self, request: &Request<'_>) -> Option<Box<Captures>> {
        if self.has_groups { self.captured(request) } else { None }
    }

    /// Apart, so that what most routes do not need takes no room on the stack.
    #[inline(never)]
    fn captured(&self, request: &Request<'_>) -> Option<Box<Captures>> {
        let mut groups = Groups::default();
        self.program.holds(request, &mut groups);
        groups.0
    }
}

/// The only scheme that requests may have for a route of this flavor. A route for https alone takes requests in clear too, so
/// that they can be redirected.
pub(crate) fn required_scheme(protocols: &[Protocol]) -> Option<Scheme> {
    let has = |one: [Protocol; 2]| protocols.iter().any(|protocol| one.contains(protocol));
    let (http, https) = (has([Protocol::Http, Protocol::Grpc]), has([Protocol::Https, Protocol::Grpcs]));
    match (http, https) {
        (true, false) => Some(Scheme::Http),
        (false, true) if protocols != [Protocol::Https] => Some(Scheme::Https),
        _ => None,
    }
}

/// Checks the types of an expression, and compiles its regexes.
struct Compiler<'c> {
    text: &'c str,
    layer: Layer,
    patterns: &'c mut Patterns,
    has_groups: bool,
}

impl<'c> Compiler<'c> {
    fn new(text: &'c str, layer: Layer, patterns: &'c mut Patterns) -> Compiler<'c> {
        Compiler { text, layer, patterns, has_groups: false }
    }

    fn node(&mut self, parsed: &ast::Node<'_>) -> Result<Node, ExpressionError> {
        Ok(match parsed {
            ast::Node::Predicate(predicate) => Node::Test(self.test(predicate)?),
            ast::Node::All(nodes) => Node::All(self.nodes(nodes)?),
            ast::Node::Any(nodes) => Node::Any(self.nodes(nodes)?),
            ast::Node::Not(inner) => Node::Not(Box::new(self.node(inner)?)),
        })
    }

    fn nodes(&mut self, parsed: &[ast::Node<'_>]) -> Result<Box<[Node]>, ExpressionError> {
        parsed.iter().map(|node| self.node(node)).collect()
    }

    fn test(&mut self, predicate: &Predicate<'_>) -> Result<Test, ExpressionError> {
        let field = self.field(predicate)?;
        let patterns = &mut *self.patterns;
        let compile = |regex: &str| patterns.text(regex);
        let Predicate { lower, any, operator, value, .. } = predicate;
        let check = Check::new(field.kind(), *lower, *operator, value, compile);
        let at = if *operator == Operator::Regex { predicate.value_at } else { predicate.at };
        let check = check.map_err(|mut reason| {
            if reason == TYPE_MISMATCH {
                reason = format!("{reason}: {}", hints::of_type(field.kind(), predicate, self.text));
            }
            ExpressionError::at(self.text, at, reason)
        })?;
        if let Check::Text(TextCheck::Regex(regex)) = &check {
            self.has_groups |= regex.pattern.has_groups();
        }
        Ok(Test { field, lower: *lower, any: *any, check })
    }

    fn field(&self, predicate: &Predicate<'_>) -> Result<Field, ExpressionError> {
        let name = if is_old_port(predicate) { "net.dst.port" } else { predicate.field };
        Field::named(name, self.layer).map_err(|reason| {
            let reason = match reason {
                NoField::Unknown => format!("Unknown LHS field: `{name}`{}", hints::unknown_field(name)),
                NoField::Segments => format!(
                    "illformed http.path.segments.* field: `{name}`; write a position such as 0, a range such as 0_2, or len"
                ),
            };
            ExpressionError::at(self.text, predicate.at, reason)
        })
    }
}

/// Kong rewrites `net.port` where an operator of numbers follows it at once.
fn is_old_port(predicate: &Predicate<'_>) -> bool {
    use Operator::{Equals, Greater, GreaterOrEqual, Less, LessOrEqual, NotEquals};
    let of_numbers =
        matches!(predicate.operator, Equals | NotEquals | Greater | GreaterOrEqual | Less | LessOrEqual);
    predicate.field == "net.port" && !predicate.has_function() && of_numbers
}
