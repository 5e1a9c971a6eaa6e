//! Values with `$(…)` in them.

use super::expression::Expression;
use super::parser::{Parser, Reason};
use weir_plugin::{Exchange, ScriptValue, Scripts};

/// A value that depends on the request.
#[derive(Debug, PartialEq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq)]
enum Piece {
    Text(Box<str>),
    Expression(Expression),
    /// Code that Lua evaluates.
    Code(Box<str>),
}

impl Template {
    /// None if the text is the same for every request. The error says why it is not a template.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, inner)) = rest.split_once("$(") {
            let (piece, after) = match Parser::new(inner).parenthesised() {
                Ok((expression, after)) => (Piece::Expression(expression), after),
                Err(Reason::Mistake(message)) => return Err(format!("the template has {message}")),
                Err(Reason::ForLua) => code(inner)?,
            };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            pieces.push(piece);
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

    /// The code in it that Lua evaluates, in its order.
    pub(super) fn code(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Code(code) => Some(&**code),
            _ => None,
        })
    }

    /// Appends the value for a request; `values` are those of the code in it.
    pub(super) fn render(
        &self,
        exchange: &Exchange,
        mut values: impl Iterator<Item = ScriptValue>,
        out: &mut Vec<u8>,
    ) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Expression(expression) => out.extend_from_slice(expression.evaluate(exchange).text()),
                Piece::Code(_) => append(values.next(), out),
            }
        }
    }
}

/// Nil and false are rendered as nothing.
fn append(value: Option<ScriptValue>, out: &mut Vec<u8>) {
    match value {
        None | Some(ScriptValue::Nil) => {}
        Some(ScriptValue::Text(text)) => out.extend_from_slice(&text),
        Some(ScriptValue::Json(value)) if value == false => {}
        Some(ScriptValue::Json(value)) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}

/// Code up to the parenthesis that ends it, counted as Lua's `%b()` does, and what follows.
fn code(inner: &str) -> Result<(Piece, &str), String> {
    let mut depth = 1_usize;
    let end = inner.bytes().position(|byte| {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let Some(end) = end else {
        return Err("the template has `$(` without a closing parenthesis".to_owned());
    };
    let code = &inner[..end];
    <dyn Scripts>::check(&format!("return {code}"))?;
    Ok((Piece::Code(code.into()), &inner[end + 1..]))
}
