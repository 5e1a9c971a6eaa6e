//! The path templates of `google.api.http`: `/v1/{name=shelves/*}/books:list`.

use percent_encoding::percent_decode_str;

/// A template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<Segment>,
    variables: Vec<Variable>,
    /// What follows the last segment behind a colon.
    verb: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// `*`: one segment.
    One,
    /// `**`: one segment or more.
    Many,
}

/// A field, and the segments whose text it gets.
#[derive(Debug, PartialEq, Eq)]
struct Variable {
    field: String,
    from: usize,
    to: usize,
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("the path {text:?} of an annotation {what}");
        let rest = text.strip_prefix('/').ok_or_else(|| wrong("does not begin with a slash"))?;
        let verb = rest.rfind(':').filter(|at| !rest[*at..].contains(['/', '}']));
        let (mut rest, verb) = match verb {
            Some(at) => (&rest[..at], Some(rest[at + 1..].to_owned())),
            None => (rest, None),
        };
        let mut template = Self { segments: Vec::new(), variables: Vec::new(), verb };
        loop {
            let end = match rest.strip_prefix('{') {
                Some(inner) => 2 + inner.find('}').ok_or_else(|| wrong("has no closing brace"))?,
                None => rest.find('/').unwrap_or(rest.len()),
            };
            let (piece, behind) = rest.split_at(end);
            template.push(piece).map_err(wrong)?;
            match behind.strip_prefix('/') {
                Some(more) => rest = more,
                None if behind.is_empty() => break,
                None => return Err(wrong("has something behind a closing brace")),
            }
        }
        let many = template.segments.iter().filter(|segment| **segment == Segment::Many).count();
        if many > 1 { Err(wrong("has more than one `**`")) } else { Ok(template) }
    }

    /// Adds a segment or a variable.
    fn push(&mut self, piece: &str) -> Result<(), &'static str> {
        let Some(variable) = piece.strip_prefix('{').and_then(|piece| piece.strip_suffix('}')) else {
            return self.push_segment(piece);
        };
        let (field, pattern) = variable.split_once('=').unwrap_or((variable, "*"));
        let from = self.segments.len();
        pattern.split('/').try_for_each(|segment| self.push_segment(segment))?;
        let (field, to) = (field.trim().to_owned(), self.segments.len());
        self.variables.push(Variable { field, from, to });
        Ok(())
    }

    fn push_segment(&mut self, segment: &str) -> Result<(), &'static str> {
        self.segments.push(match segment {
            "" => return Err("has an empty segment"),
            "*" => Segment::One,
            "**" => Segment::Many,
            literal if literal.contains(['{', '}', '*']) => {
                return Err("has a brace or an asterisk within a segment");
            }
            literal => Segment::Literal(literal.to_owned()),
        });
        Ok(())
    }

    /// The fields that the path names, one after another.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| variable.field.as_str())
    }

    /// The texts of the fields, if the path is one of the template.
    pub(super) fn matches(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let path = path.strip_prefix('/')?;
        let path = match &self.verb {
            Some(verb) => path.strip_suffix(verb)?.strip_suffix(':')?,
            None => path,
        };
        let parts: Vec<&str> = path.split('/').collect();
        let spare = (parts.len() + 1).checked_sub(self.segments.len())?;
        let mut ends = Vec::with_capacity(self.segments.len());
        let mut at = 0;
        for segment in &self.segments {
            let length = if *segment == Segment::Many { spare } else { 1 };
            let taken = parts.get(at..at + length)?;
            let fits = match segment {
                Segment::Literal(literal) => taken == [literal.as_str()],
                Segment::One => !taken[0].is_empty(),
                Segment::Many => !taken.is_empty() && taken.iter().any(|part| !part.is_empty()),
            };
            if !fits {
                return None;
            }
            at += length;
            ends.push(at);
        }
        let start = |segment: usize| segment.checked_sub(1).map_or(0, |before| ends[before]);
        let text =
            |variable: &Variable| decoded(&parts[start(variable.from)..ends[variable.to - 1]].join("/"));
        let fields = self.variables.iter().map(|variable| (variable.field.as_str(), text(variable)));
        (at == parts.len()).then(|| fields.collect())
    }
}

/// Undoes percent-encoding. What is no valid escape stays.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(template: &str, path: &str) -> Option<String> {
        let template = Template::parse(template).unwrap();
        let fields = template.matches(path)?;
        Some(fields.iter().map(|(field, text)| format!("{field}={text}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn paths_are_matched() {
        let cases = [
            ("/v1/hello", "/v1/hello", Some("")),
            ("/v1/hello", "/v1/hello/", None),
            ("/v1/{name}", "/v1/J%C3%BCrgen%2Fx", Some("name=J\u{fc}rgen/x")),
            ("/v1/{name}", "/v1/a%+1b", Some("name=a%+1b")),
            ("/v1/{name}", "/v1/", None),
            ("/v1/{name}", "/v1/a/b", None),
            ("/v1/{user.id}/x/{b}", "/v1/7/x/8", Some("user.id=7 b=8")),
            ("/v1/{name=shelves/*/books/*}", "/v1/shelves/1/books/2", Some("name=shelves/1/books/2")),
            ("/v1/{name=shelves/*}/books", "/v1/shelves/1/books", Some("name=shelves/1")),
            ("/v1/{name=a/**}", "/v1/a/b/c", Some("name=a/b/c")),
            ("/v1/{name=a/**}", "/v1/a", None),
            ("/v1/{name=**}/end", "/v1/a/b/end", Some("name=a/b")),
            ("/v1/{name=**}/end", "/v1/a/b/other", None),
            ("/v1/*/x", "/v1/anything/x", Some("")),
            ("/v1/{id}:cancel", "/v1/a:b:cancel", Some("id=a:b")),
            ("/v1/{id}:cancel", "/v1/a", None),
            ("/v1/{id}", "/v2/a", None),
            ("/{a}", "/%zz%4", Some("a=%zz%4")),
        ];
        for (template, path, expected) in cases {
            assert_eq!(found(template, path).as_deref(), expected, "{template} {path}");
        }
    }

    #[test]
    fn templates_that_mean_nothing_are_refused() {
        for wrong in ["", "v1", "/v1//a", "/v1/{a", "/v1/{a}b", "/v1/a*", "/**/{b=**}", "/v1/{a=}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
