//! Why an expression does not match: the predicates that decide it.
use super::ast::{self, Predicate};
use super::evaluate::MatchedPath;
use super::field::{Field, FieldType};
use super::subject::{Request, Subject};
use super::{Compiler, ExpressionError, Layer, Test, parser};
use crate::pattern::Patterns;
use std::fmt;
use weir_model::schema::quoted;

/// A predicate that keeps a request from matching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidingPredicate {
    /// The predicate, as written.
    pub predicate: String,
    /// Whether it holds, which keeps a request from matching behind `!`.
    pub holds: bool,
    /// The name of its field.
    pub field: String,
    /// What the request has there.
    pub value: FieldValue,
}

/// What a request has in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// Nothing.
    Absent,
    /// Something that may be a secret of the client: a header, or an argument of the query.
    Hidden,
    /// This.
    Is(String),
}

impl fmt::Display for DecidingPredicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecidingPredicate { predicate, holds, field, .. } = self;
        write!(f, "`{predicate}` is {holds}: ")?;
        match &self.value {
            FieldValue::Absent => write!(f, "the request has no {field}"),
            FieldValue::Hidden if *holds => write!(f, "{field} has such a value"),
            FieldValue::Hidden => write!(f, "{field} has another value"),
            FieldValue::Is(value) => write!(f, "{field} is `{}`", quoted(value)),
        }
    }
}

/// The predicates that keep a request from matching; none if it matches.
pub(crate) fn deciding(text: &str, request: &Request<'_>) -> Vec<DecidingPredicate> {
    let mut patterns = Patterns::default();
    let mut explainer = Explainer { compiler: Compiler::new(text, Layer::Http, &mut patterns), request };
    let parsed = parser::parse(text);
    parsed.and_then(|root| explainer.deciding(&root, true)).unwrap_or_default()
}

struct Explainer<'e, 'r> {
    compiler: Compiler<'e>,
    request: &'e Request<'r>,
}

impl Explainer<'_, '_> {
    /// The predicates that keep a node from having the wanted outcome.
    fn deciding(
        &mut self,
        node: &ast::Node<'_>,
        wanted: bool,
    ) -> Result<Vec<DecidingPredicate>, ExpressionError> {
        match node {
            ast::Node::Predicate(predicate) => {
                let test = self.compiler.test(predicate)?;
                let holds = test.holds(self.request, &mut MatchedPath::default());
                let deciding = (holds != wanted).then(|| self.decides(predicate, &test, holds));
                Ok(deciding.into_iter().collect())
            }
            ast::Node::Not(inner) => self.deciding(inner, !wanted),
            ast::Node::All(nodes) => self.joined(nodes, wanted, wanted),
            ast::Node::Any(nodes) => self.joined(nodes, wanted, !wanted),
        }
    }

    /// The same of several nodes, all of which must have the wanted outcome, or one.
    fn joined(
        &mut self,
        nodes: &[ast::Node<'_>],
        wanted: bool,
        all: bool,
    ) -> Result<Vec<DecidingPredicate>, ExpressionError> {
        let each = nodes.iter().map(|node| self.deciding(node, wanted));
        let each: Vec<_> = each.collect::<Result<_, _>>()?;
        let is_met = !all && each.iter().any(Vec::is_empty);
        Ok(if is_met { Vec::new() } else { each.concat() })
    }

    fn decides(&self, predicate: &Predicate<'_>, test: &Test, holds: bool) -> DecidingPredicate {
        let text = self.compiler.text.get(predicate.at..predicate.end).unwrap_or_default();
        DecidingPredicate {
            predicate: text.to_owned(),
            holds,
            field: predicate.field.to_owned(),
            value: value(&test.field, self.request),
        }
    }
}

fn value(field: &Field, request: &Request<'_>) -> FieldValue {
    if matches!(field, Field::Header(_) | Field::Query(_)) {
        let is_given = request.values(field, &mut |_| true);
        return if is_given { FieldValue::Hidden } else { FieldValue::Absent };
    }
    let value = match field.kind() {
        FieldType::Text => request.text(field).map(str::to_owned),
        FieldType::Integer => request.integer(field).map(|number| number.to_string()),
        FieldType::Address => request.address(field).map(|address| address.to_string()),
    };
    value.map_or(FieldValue::Absent, FieldValue::Is)
}
