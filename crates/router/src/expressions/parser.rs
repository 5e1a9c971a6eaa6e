//! Reads the text of an expression.
//!
//! ```text
//! expression = any { "&&" any }                `||` binds tighter than `&&`
//! any        = term { "||" term }
//! term       = lhs operator value | [ "!" ] "(" expression ")"
//! lhs        = NAME | NAME "(" lhs ")"
//! ```
use super::ast::{Node, Operator, Predicate};
use super::error::ExpressionError;
use super::{hints, literal};

/// Parentheses may be nested this deep, because each level takes room on the stack.
const MAX_DEPTH: usize = 100;

/// The operators. One that another begins with comes after it.
const OPERATORS: [(&str, Operator); 12] = [
    ("==", Operator::Equals),
    ("!=", Operator::NotEquals),
    ("~", Operator::Regex),
    ("^=", Operator::Prefix),
    ("=^", Operator::Suffix),
    (">=", Operator::GreaterOrEqual),
    (">", Operator::Greater),
    ("<=", Operator::LessOrEqual),
    ("<", Operator::Less),
    ("in", Operator::In),
    ("not", Operator::NotIn),
    ("contains", Operator::Contains),
];

/// Parses a whole expression.
pub(super) fn parse(text: &str) -> Result<Node<'_>, ExpressionError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let node = parser.all()?;
    parser.skip_space();
    if parser.rest().is_empty() {
        return Ok(node);
    }
    let hint = hints::of_joint(parser.rest());
    Err(parser.error(format!("expected `&&`, `||` or the end of the expression{hint}")))
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn all(&mut self) -> Result<Node<'t>, ExpressionError> {
        let mut nodes = vec![self.any()?];
        while self.take("&&") {
            nodes.push(self.any()?);
        }
        Ok(joined(nodes, Node::All))
    }

    fn any(&mut self) -> Result<Node<'t>, ExpressionError> {
        let mut nodes = vec![self.term()?];
        while self.take("||") {
            nodes.push(self.term()?);
        }
        Ok(joined(nodes, Node::Any))
    }

    fn term(&mut self) -> Result<Node<'t>, ExpressionError> {
        self.skip_space();
        let start = self.at;
        let negated = self.take("!");
        if self.take("(") {
            let inner = self.parenthesised()?;
            return Ok(if negated { Node::Not(Box::new(inner)) } else { inner });
        }
        if negated {
            self.at = start;
            return Err(self.error("expected term: `!` stands before a parenthesis only, write `!(…)`"));
        }
        self.predicate().map(Node::Predicate)
    }

    fn parenthesised(&mut self) -> Result<Node<'t>, ExpressionError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(format!("parentheses are nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let inner = self.all()?;
        self.depth -= 1;
        if self.take(")") {
            return Ok(inner);
        }
        Err(self.error(format!("expected `&&`, `||` or `)`{}", hints::of_joint(self.rest()))))
    }

    fn predicate(&mut self) -> Result<Predicate<'t>, ExpressionError> {
        let at = self.at;
        let (field, functions) = self.field()?;
        let operator = self.operator(field)?;
        self.skip_space();
        let value_at = self.at;
        let (value, length) = literal::parse(self.rest()).map_err(|reason| self.error(reason))?;
        self.at += length;
        let [lower, any] = functions;
        Ok(Predicate { at, field, lower, any, operator, value_at, value, end: self.at })
    }

    /// The name of a field, and whether `lower()` and `any()` are around it.
    fn field(&mut self) -> Result<(&'t str, [bool; 2]), ExpressionError> {
        let (mut functions, mut open) = ([false; 2], 0);
        let mut start = self.at;
        let mut name = self.name("expected term: a field, `(` or `!(`")?;
        while self.take("(") {
            match name {
                "lower" => functions[0] = true,
                "any" => functions[1] = true,
                _ => {
                    self.at = start;
                    let hint = hints::of_function(name);
                    return Err(self.error(format!("unknown transformation function: {name}; {hint}")));
                }
            }
            open += 1;
            self.skip_space();
            start = self.at;
            name = self.name("expected a field")?;
        }
        for _ in 0..open {
            if !self.take(")") {
                let hint = hints::of_header(name, self.rest()).unwrap_or_default();
                return Err(self.error(format!("expected `)`{hint}")));
            }
        }
        Ok((name, functions))
    }

    fn name(&mut self, expected: &str) -> Result<&'t str, ExpressionError> {
        let rest = self.rest();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        let length = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(self.error(expected));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    /// The operator behind a field.
    fn operator(&mut self, field: &str) -> Result<Operator, ExpressionError> {
        let found = OPERATORS.iter().find(|(text, _)| self.take(text)).map(|(_, operator)| *operator);
        match found {
            Some(Operator::NotIn) if !self.take("in") => Err(self.error("expected `in` after `not`")),
            Some(operator) => Ok(operator),
            None => {
                let all = "==, !=, ~, ^=, =^, >=, >, <=, <, in, not in, contains";
                let hint = hints::of_operator(field, self.rest());
                Err(self.error(format!("expected an operator, one of {all}{hint}")))
            }
        }
    }

    /// Skips spaces, and this text if it follows.
    fn take(&mut self, text: &str) -> bool {
        self.skip_space();
        let follows = self.rest().starts_with(text);
        if follows {
            self.at += text.len();
        }
        follows
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, reason: impl Into<String>) -> ExpressionError {
        ExpressionError::at(self.text, self.at, reason)
    }
}

/// The only node, or all of them joined.
fn joined<'t>(mut nodes: Vec<Node<'t>>, join: fn(Vec<Node<'t>>) -> Node<'t>) -> Node<'t> {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        last => {
            nodes.extend(last);
            join(nodes)
        }
    }
}
