//! Values with `$(…)` in them.

use super::expression::Expression;
use super::parser::Parser;
use weir_plugin::Exchange;

/// A value that depends on the request.
#[derive(Debug, PartialEq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq)]
enum Piece {
    Text(Box<str>),
    Expression(Expression),
}

impl Template {
    /// None if the text is the same for every request. The error says why it is not a template and what one is.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, inner)) = rest.split_once("$(") {
            let (expression, after) =
                Parser::new(inner).parenthesised().map_err(|reason| refusal(&reason))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            pieces.push(Piece::Expression(expression));
            rest = after;
        }
        if pieces.is_empty() {
            return Ok(None);
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Some(Self(pieces)))
    }

    /// Appends the value for a request.
    pub(super) fn render(&self, exchange: &Exchange, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Expression(expression) => out.extend_from_slice(expression.evaluate(exchange).text()),
            }
        }
    }
}

/// Says what was found and what is allowed. The template is not repeated, because it may contain keys.
fn refusal(found: &str) -> String {
    format!(
        "the template has {found}; Lua is not run: write $(…) with headers, query_params, uri_captures, consumer, texts in \
         quotes, and, or, not, ==, ~=, .., :sub(i, j), :lower() and :upper()"
    )
}
