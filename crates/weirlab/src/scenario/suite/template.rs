//! The texts of a suite, which may be templates, and where they stand.
use super::change::Place;
use super::parameters::Combination;
use crate::catalogue::{mentioned, position, render};
use crate::scenario::ScenarioError;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// The suite's file.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Where in the file a part of it stands.
    pub(super) fn place(&self, span: Range<usize>) -> Place {
        let (line, column) = position(self.text, span.start);
        Place { file: self.path.to_owned(), line, column }
    }

    /// The error for a part of the file.
    pub(super) fn invalid(&self, span: Range<usize>, message: String) -> ScenarioError {
        self.place(span).invalid(message)
    }

    /// The names that a text mentions as a template.
    pub(super) fn names(&self, text: &Spanned<String>) -> Result<BTreeSet<String>, ScenarioError> {
        mentioned(self.path, text.get_ref()).map_err(|error| self.placed(text.span(), error))
    }

    /// The text with values in the places of names.
    pub(super) fn fill(
        &self,
        text: &Spanned<String>,
        values: &Combination<'_>,
    ) -> Result<String, ScenarioError> {
        if !text.get_ref().contains('{') {
            return Ok(text.get_ref().clone());
        }
        render(self.path, text.get_ref(), values.context()).map_err(|error| self.placed(text.span(), error))
    }

    /// A template's error, which knows its line within the template alone, at its place in the file.
    fn placed(&self, span: Range<usize>, error: ScenarioError) -> ScenarioError {
        match error {
            ScenarioError::Invalid { message, .. } => self.invalid(span, message),
            other => other,
        }
    }

    /// A value; what a template makes is a number, or true or false, where it can be read as one.
    pub(super) fn value(
        &self,
        value: &Spanned<Value>,
        values: &Combination<'_>,
    ) -> Result<Value, ScenarioError> {
        match value.get_ref() {
            Value::String(text) if text.contains('{') => {
                let text = self.fill(&Spanned::new(value.span(), text.clone()), values)?;
                Ok(read_word(&text))
            }
            other => Ok(other.clone()),
        }
    }

    /// A number, or what a template makes one of.
    pub(super) fn number(
        &self,
        value: &Spanned<Value>,
        values: &Combination<'_>,
    ) -> Result<f64, ScenarioError> {
        let found = self.value(value, values)?;
        found.as_f64().filter(|number| *number > 0.0).ok_or_else(|| {
            self.invalid(
                value.span(),
                format!("{found} should be a number above 0, or a template that makes one"),
            )
        })
    }

    /// A whole number, or what a template makes one of.
    pub(super) fn count(
        &self,
        value: &Spanned<Value>,
        values: &Combination<'_>,
    ) -> Result<usize, ScenarioError> {
        let number = self.number(value, values)?;
        // Above 2^53 a floating point number would no longer be exact.
        let whole = number.fract() == 0.0 && number < 9e15;
        whole
            .then_some(number as usize)
            .ok_or_else(|| self.invalid(value.span(), format!("{number} should be a whole number from 1 on")))
    }
}

/// A word of the command line, or what a template makes.
pub(super) fn read_word(text: &str) -> Value {
    let text = text.trim();
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}
