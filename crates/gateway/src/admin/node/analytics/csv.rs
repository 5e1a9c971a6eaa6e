//! Answers as CSV (RFC 4180), which is safe to open in a spreadsheet.
use super::{ApiRequest, invalid};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use weir_model::schema::quoted;

/// How an answer becomes a table.
#[derive(Clone, Copy)]
pub(super) enum Table {
    /// A row for each of `data`: what a column is called, and where a row has it, as a JSON pointer.
    Rows(&'static [(&'static str, &'static str)]),
    /// A row for each point in time, and a column for each of `columns`.
    Series,
}

/// Whether a client wants CSV rather than JSON, by `format` or else by `Accept`.
pub(super) fn is_asked(call: &ApiRequest) -> Result<bool, (StatusCode, String)> {
    match call.argument("format") {
        Some("csv") => Ok(true),
        Some("json") => Ok(false),
        Some(other) => Err(invalid(format!("format: there is no `{}`; use csv or json", quoted(other)))),
        None => {
            let accepted = call.headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
            let mut types = accepted.unwrap_or_default().split(',').filter_map(|one| one.split(';').next());
            Ok(types.any(|one| one.trim().eq_ignore_ascii_case("text/csv")))
        }
    }
}

/// The response with a table, which browsers save as a file of this name.
pub(super) fn response(name: &str, answer: &Value, table: Table) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.csv\"")),
        (header::VARY, "Accept".to_owned()),
    ];
    (headers, text(answer, table)).into_response()
}

fn text(answer: &Value, table: Table) -> String {
    let (heads, rows) = match table {
        Table::Series => series(answer),
        Table::Rows(columns) => rows(answer, columns),
    };
    let mut text = String::new();
    push_line(&mut text, heads.into_iter().map(|head| field(&Value::String(head))));
    for row in rows {
        push_line(&mut text, row.into_iter().map(|value| value.map(field).unwrap_or_default()));
    }
    text
}

type Cells<'a> = Vec<Vec<Option<&'a Value>>>;

/// The metric that rows are ordered by is the last column, unless it is one already.
fn rows<'a>(answer: &'a Value, columns: &[(&str, &str)]) -> (Vec<String>, Cells<'a>) {
    let mut columns: Vec<_> =
        columns.iter().map(|(name, place)| ((*name).to_owned(), (*place).to_owned())).collect();
    if let Some(of) = answer["of"].as_str().filter(|of| columns.iter().all(|(name, _)| name != of)) {
        columns.push((of.to_owned(), format!("/{of}")));
    }
    let data = answer["data"].as_array().into_iter().flatten();
    let cells = data.map(|row| columns.iter().map(|(_, place)| row.pointer(place)).collect()).collect();
    (columns.into_iter().map(|(name, _)| name).collect(), cells)
}

fn series(answer: &Value) -> (Vec<String>, Cells<'_>) {
    let columns: Vec<_> = answer["columns"].as_array().into_iter().flatten().collect();
    let metric = answer["metric"].as_str().unwrap_or_default();
    let head = |column: &&Value| {
        let name = column["name"].as_str().or(column["label"].as_str()).unwrap_or_default();
        if name.is_empty() { metric.to_owned() } else { name.to_owned() }
    };
    let heads = std::iter::once("time".to_owned()).chain(columns.iter().map(head)).collect();
    let times = answer["times"].as_array().into_iter().flatten().enumerate();
    let cells = times.map(|(place, time)| {
        let values = columns.iter().map(|column| column["values"].get(place));
        std::iter::once(Some(time)).chain(values).collect()
    });
    (heads, cells.collect())
}

fn push_line(text: &mut String, fields: impl Iterator<Item = String>) {
    text.push_str(&fields.collect::<Vec<_>>().join(","));
    text.push_str("\r\n");
}

/// A text without formulas.
fn field(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => without_formulas(text),
        other => return other.to_string(),
    };
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// An apostrophe before what a spreadsheet would take for a formula, also one that separates fields by semicolons or
/// tabs, for which fields begin within this text and quotes are none.
fn without_formulas(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    if text.starts_with(['\t', '\r']) {
        safe.push('\'');
    }
    let mut begins_field = true;
    for letter in text.chars() {
        if begins_field && matches!(letter, '=' | '+' | '-' | '@') {
            safe.push('\'');
        }
        safe.push(letter);
        begins_field = match letter {
            ' ' | '"' => begins_field,
            _ => matches!(letter, ';' | '\t' | '\r' | '\n'),
        };
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_quoted_and_are_no_formulas() {
        for (value, expected) in [
            (json!("a,b"), "\"a,b\""),
            (json!("say \"hi\"\r\n"), "\"say \"\"hi\"\"\r\n\""),
            (json!("=HYPERLINK(\"x\")"), "\"'=HYPERLINK(\"\"x\"\")\""),
            (json!("+1"), "'+1"),
            (json!("@a"), "'@a"),
            (json!("-1"), "'-1"),
            (json!("a;=1;b;+c"), "a;'=1;b;'+c"),
            (json!("a\t@b"), "a\t'@b"),
            (json!("\t=b"), "'\t'=b"),
            (json!("a; \"=b\""), "\"a; \"\"'=b\"\"\""),
            (json!("a-b;c=d"), "a-b;c=d"),
            (json!(-1), "-1"),
            (json!(0.25), "0.25"),
            (json!(null), ""),
            (json!("naïve"), "naïve"),
        ] {
            assert_eq!(field(&value), expected);
        }
    }

    #[test]
    fn rows_have_a_head_even_if_there_are_none() {
        let columns = Table::Rows(&[("route", "/route/name"), ("count", "/count")]);
        let row = json!({ "route": { "name": "=r" }, "count": 3, "p95": 0.5 });
        assert_eq!(text(&json!({ "data": [] }), columns), "route,count\r\n");
        assert_eq!(text(&json!({ "data": [row] }), columns), "route,count\r\n'=r,3\r\n");
        let answer = json!({ "data": [row], "of": "p95" });
        assert_eq!(text(&answer, columns), "route,count,p95\r\n'=r,3,0.5\r\n");
    }

    #[test]
    fn series_have_a_row_for_each_time() {
        let columns = json!([{ "label": "200", "values": [1, null] }, { "label": "x", "name": "@r", "values": [2, 3] }]);
        let answer = json!({ "metric": "requests", "times": [10, 20], "columns": columns });
        assert_eq!(text(&answer, Table::Series), "time,200,'@r\r\n10,1,2\r\n20,,3\r\n");
        let one = json!({ "metric": "p99", "times": [10], "columns": [{ "label": "", "values": [0.5] }] });
        assert_eq!(text(&one, Table::Series), "time,p99\r\n10,0.5\r\n");
    }
}
