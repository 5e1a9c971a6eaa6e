//! YAML text → one tree with positions. Anchors, aliases and merge keys are resolved; keys are unique.
use super::tree::{close_map, syntax};
use crate::node::{Entry, Node, Origin, Position, Value};
use crate::schema::ConfigError;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// Far more than any real configuration has: what aliases of aliases may expand to.
const MAX_NODES: usize = 5_000_000;
const MAX_DEPTH: usize = 64;

/// Parses the one document of a text.
pub(super) fn parse(text: &str) -> Result<Node<'_>, Vec<ConfigError>> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => builder.event(event, position(&span.start)),
            Err(error) => {
                let at = position(error.marker());
                let hint = not_valid(error.info(), line(text, at));
                Err(syntax(tab(error.info(), text, at).unwrap_or(at), hint))
            }
        };
        if let Err(problem) = step {
            builder.problems.push(problem);
            return Err(builder.problems);
        }
    }
    match builder.root {
        Some(root) if builder.problems.is_empty() => Ok(root),
        None => Ok(Node::new(Value::Null, Position { line: 1, column: 1 })),
        _ => Err(builder.problems),
    }
}

/// What the parser says, and what is usually behind it.
fn not_valid(info: &str, line: &str) -> String {
    let hint = |(sign, hint): &(&str, &'static str)| info.contains(sign).then_some(*hint);
    let hint = match HINTS.iter().find_map(hint) {
        _ if info.contains("mapping values") && line.matches(": ").count() > 1 => {
            "; put a text that holds `: ` in quotes"
        }
        None if line.contains("${") => "; inside { } and [ ], put \"${NAME}\" in quotes",
        hint => hint.unwrap_or_default(),
    };
    format!("not valid YAML: {info}{hint}")
}

/// The tab that lines are indented with: the parser complains of it at the end of what stands before.
fn tab(info: &str, text: &str, at: Position) -> Option<Position> {
    let lines = (at.line..).zip(text.lines().skip(at.line.saturating_sub(1) as usize));
    let mut lines = lines.filter(|(_, line)| info.contains("tab") && !line.trim().is_empty()).take(2);
    lines.find_map(|(number, line)| {
        let indentation = line.len() - line.trim_start().len();
        let column = u32::try_from(line[..indentation].find('\t')?).ok()?;
        Some(Position { line: number, column: column + 1 })
    })
}

fn line(text: &str, at: Position) -> &str {
    text.lines().nth(at.line.saturating_sub(1) as usize).unwrap_or_default()
}

const HINTS: &[(&str, &str)] = &[
    ("escape", "; use single quotes for regexes"),
    ("tab", "; indent with spaces, not tabs"),
    ("valid YAML whitespace", "; write a space behind the `:`"),
    ("mapping values", "; is this line indented like the one above?"),
    ("did not find expected '-' indicator", "; is this line indented like the one above?"),
    ("did not find expected key", "; is this line indented like the one above?"),
];

fn position(marker: &Marker) -> Position {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: count(marker.line()), column: count(marker.col()).saturating_add(1) }
}

#[derive(Default)]
struct Builder<'a> {
    open: Vec<Open<'a>>,
    anchors: HashMap<usize, Node<'a>>,
    nodes: usize,
    root: Option<Node<'a>>,
    problems: Vec<ConfigError>,
}

/// A collection whose end has not come yet.
struct Open<'a> {
    at: Position,
    anchor: usize,
    collection: Collection<'a>,
}

enum Collection<'a> {
    List(Vec<Node<'a>>),
    Map(Vec<Entry<'a>>, Option<(Cow<'a, str>, Position)>),
}

impl<'a> Builder<'a> {
    fn event(&mut self, event: Event<'a>, at: Position) -> Result<(), ConfigError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag.as_deref(), at),
            Event::SequenceStart(anchor, _) => self.begin(Collection::List(Vec::new()), anchor, at),
            Event::MappingStart(anchor, _) => self.begin(Collection::Map(Vec::new(), None), anchor, at),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, at),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(syntax(at, "expected one YAML document; remove this `---` and what follows"))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, collection: Collection<'a>, anchor: usize, at: Position) -> Result<(), ConfigError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(syntax(at, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        if matches!(self.open.last(), Some(Open { collection: Collection::Map(_, None), .. })) {
            return Err(syntax(
                at,
                "expected a key, got a collection; put a string that starts with [ or { in quotes",
            ));
        }
        self.open.push(Open { at, anchor, collection });
        Ok(())
    }

    fn end(&mut self) -> Result<(), ConfigError> {
        let Some(Open { at, anchor, collection }) = self.open.pop() else { return Ok(()) };
        let value = match collection {
            Collection::List(elements) => Value::List(elements),
            Collection::Map(entries, _) => Value::Map(close_map(entries, &mut self.problems)),
        };
        self.add(Node::new(value, at), anchor)
    }

    fn scalar(
        &mut self,
        text: Cow<'a, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Position,
    ) -> Result<(), ConfigError> {
        if let Some(Open { collection: Collection::Map(_, key @ None), .. }) = self.open.last_mut() {
            *key = Some((text, at));
            return Ok(());
        }
        let string = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
        let value = match style {
            ScalarStyle::Plain if !string => plain(text),
            _ => Value::Str(text, Origin::Quoted),
        };
        self.add(Node::new(value, at), anchor)
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), ConfigError> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(syntax(at, "this alias names an anchor that is not complete yet"));
        };
        if self.open.len() + depth(node) > MAX_DEPTH {
            return Err(syntax(at, format!("nested more than {MAX_DEPTH} levels deep, aliases expanded")));
        }
        let node = node.clone();
        self.nodes += size(&node);
        self.add(node, 0)
    }

    /// Puts a complete node where it belongs.
    fn add(&mut self, node: Node<'a>, anchor: usize) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(syntax(node.at, format!("more than {MAX_NODES} values, aliases expanded")));
        }
        if anchor > 0 {
            self.nodes += size(&node);
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(node),
            Some(Collection::List(elements)) => elements.push(node),
            Some(Collection::Map(entries, key)) => match key.take() {
                Some((key, at)) => entries.push(Entry { key, at, node }),
                None => return Err(syntax(node.at, "expected a key, got an alias")),
            },
        }
        Ok(())
    }
}

fn size(node: &Node<'_>) -> usize {
    let elements: usize = node.elements().iter().map(size).sum();
    let members: usize = node.entries().iter().map(|entry| size(&entry.node)).sum();
    1 + elements + members
}

/// How deep collections lie in one another here.
fn depth(node: &Node<'_>) -> usize {
    let nodes = node.elements().iter().chain(node.entries().iter().map(|entry| &entry.node));
    let is_collection = matches!(node.value, Value::List(_) | Value::Map(_));
    usize::from(is_collection) + nodes.map(depth).max().unwrap_or_default()
}

/// What a bare word stands for, by the core schema of YAML 1.2.
fn plain(text: Cow<'_, str>) -> Value<'_> {
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    match number(&text) {
        Some(value) => value,
        None => Value::Str(text, Origin::Plain),
    }
}

fn number(text: &str) -> Option<Value<'static>> {
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return i64::from_str_radix(digits, 16).ok().map(Value::Int);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return i64::from_str_radix(digits, 8).ok().map(Value::Int);
    }
    if let Ok(value) = text.parse() {
        return Some(Value::Int(value));
    }
    let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E');
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    if has_digit && text.bytes().all(numeric) { text.parse().ok().map(Value::Float) } else { None }
}
