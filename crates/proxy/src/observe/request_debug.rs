//! Reports the timings of a request that asks for them: Kong's `X-Kong-Request-Debug`.

use crate::exchange::{Exchange, Times, Tree, WORKSPACE, is_forwarded};
use std::fmt;
use tokio::time::Instant;
use weir_http1::Known;
use weir_plugin::json_text::Object;

/// An output from so many bytes on stays out of the response: servers in front may not take it.
const MAX_HEADER_LEN: usize = 2 * 1024;

/// How many bytes of an output a line of the log holds.
const MAX_LINE_LEN: usize = 3 * 1024;

const LOG: &str = "X-Kong-Request-Debug-Log";

/// Requests may ask for their times, from loopback addresses or with a token.
#[derive(Clone)]
pub struct RequestDebug {
    /// The token.
    pub token: String,
}

impl fmt::Debug for RequestDebug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestDebug(…)")
    }
}

impl RequestDebug {
    /// Whether the request has something to say of this, which few do.
    #[inline]
    pub(crate) fn concerns(exchange: &Exchange) -> bool {
        let headers = &exchange.request.headers;
        headers.contains_known(Known::XKongRequestDebug)
            || headers.contains_known(Known::XKongRequestDebugToken)
    }

    /// Starts to record the timings of a request if it may ask for them. Removes the headers that ask for them, so that
    /// the upstream does not get them.
    #[cold]
    pub(crate) fn watch(&self, exchange: &mut Exchange) {
        if let Some(times) = self.begin(exchange) {
            exchange.set_times(times);
            exchange.watch.begin();
        }
    }

    fn begin(&self, exchange: &mut Exchange) -> Option<Times> {
        // Who another speaks for without being trusted is not at the address of the connection.
        let speaks_for_itself = exchange.engine.connection.trusted || !is_forwarded(exchange);
        let headers = &mut exchange.request.headers;
        let asks = headers.get_known(Known::XKongRequestDebug) == Some(b"*");
        let token = headers.get_known(Known::XKongRequestDebugToken).unwrap_or_default();
        let knows = aws_lc_rs::constant_time::verify_slices_are_equal(token, self.token.as_bytes()).is_ok();
        let log = headers.get(LOG) == Some(b"true");
        headers.remove_known(Known::XKongRequestDebug);
        headers.remove_known(Known::XKongRequestDebugToken);
        headers.remove(LOG);
        let loopback = speaks_for_itself && exchange.client_ip.to_canonical().is_loopback();
        (asks && (loopback || knows)).then(|| Times::new(log, loopback))
    }
}

/// Finds the route of a request whose timings are recorded.
#[cold]
pub(crate) fn time_router<T>(exchange: &mut Exchange, find: impl FnOnce(&mut Exchange) -> T) -> T {
    let (received, start) = (exchange.timing.start, Instant::now());
    if let Some(times) = exchange.times() {
        times.began = start;
        times.tree.at(&["rewrite"]).total = start.saturating_duration_since(received);
    }
    let found = find(exchange);
    if let Some(times) = exchange.times() {
        times.tree.spend(&["access", "router"], start.elapsed());
    }
    found
}

/// Adds the timings to the response, if the request asked for them.
#[inline]
pub(crate) fn append(exchange: &mut Exchange) {
    if exchange.times().is_some() {
        append_output(exchange);
    }
}

#[cold]
fn append_output(exchange: &mut Exchange) {
    let Some(mut times) = exchange.take_times() else { return };
    let mut output = output(exchange, &times.at_head(exchange));
    let is_cut = output.len() >= MAX_HEADER_LEN && !times.loopback;
    if is_cut {
        output = truncated(exchange);
    }
    exchange.response.headers.append("X-Kong-Request-Debug-Output", &output);
    times.log |= is_cut;
    exchange.set_times(times);
}

/// Writes the timings to the log, if the request asked for that.
#[inline]
pub(crate) fn log(exchange: &mut Exchange) {
    if exchange.times().is_some_and(|times| times.log) {
        log_output(exchange);
    }
}

#[cold]
fn log_output(exchange: &mut Exchange) {
    let Some(times) = exchange.take_times() else { return };
    let output = output(exchange, &times.at_end(exchange));
    let output = String::from_utf8_lossy(&output);
    let lines = pieces(&output);
    let many = lines.len();
    for (piece, number) in lines.into_iter().zip(1..) {
        let part = if many > 1 { format!("parts: {number}/{many} ") } else { String::new() };
        tracing::info!(request_id = exchange.id(), "[request-debug] {part}output: {piece}");
    }
}

fn pieces(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while text.len() >= MAX_LINE_LEN {
        let (piece, rest) = text.split_at(text.floor_char_boundary(MAX_LINE_LEN));
        pieces.push(piece);
        text = rest;
    }
    pieces.extend((!text.is_empty()).then_some(text));
    pieces
}

fn output(exchange: &Exchange, tree: &Tree) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut object = Object::open(&mut out);
    object.text("request_id", &exchange.id);
    object.text("workspace_id", WORKSPACE.as_bytes());
    tree.write_children(&mut object);
    object.close();
    out
}

fn truncated(exchange: &Exchange) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    object.raw("truncated", "true");
    object.text("request_id", &exchange.id);
    let message =
        "Output is truncated, please check the error_log for full output by filtering with the request_id.";
    object.text("message", message.as_bytes());
    object.close();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Gateway;
    use serde_json::{Value, json};
    use std::net::SocketAddr;
    use std::time::Duration;
    use weir_upstream::connect::Resolved;

    const TOKEN: &str = "01dd4c9e-cb5e-4b26-9e49-4eb0509fbd68";

    /// A request from this address, routed.
    fn asked(from: &str, headers: &str) -> Exchange {
        let mut exchange = Gateway::new().exchange(&format!("GET /\n{headers}"));
        exchange.client_ip = from.parse().unwrap();
        if RequestDebug::concerns(&exchange) {
            RequestDebug { token: TOKEN.to_owned() }.watch(&mut exchange);
            time_router(&mut exchange, |_| ());
        }
        exchange
    }

    fn reported(exchange: &mut Exchange) -> Option<Value> {
        append(exchange);
        let output = exchange.response.headers.get("X-Kong-Request-Debug-Output")?;
        Some(serde_json::from_slice(output).unwrap())
    }

    #[test]
    fn who_asks_from_here_or_with_the_token_is_told_and_nobody_else() {
        let ask = "X-Kong-Request-Debug: *";
        let token = |token: &str| format!("{ask}\nX-Kong-Request-Debug-Token: {token}");
        for (from, headers, is_told) in [
            ("127.0.0.7", ask.to_owned(), true),
            ("::1", ask.to_owned(), true),
            ("192.0.2.1", ask.to_owned(), false),
            ("192.0.2.1", token(TOKEN), true),
            ("192.0.2.1", token("01dd4c9e"), false),
            ("127.0.0.1", "X-Kong-Request-Debug: access".to_owned(), false),
            ("127.0.0.1", format!("X-Kong-Request-Debug-Token: {TOKEN}"), false),
            ("127.0.0.1", "X-Other: 1".to_owned(), false),
        ] {
            let mut exchange = asked(from, &headers);
            assert_eq!(reported(&mut exchange).is_some(), is_told, "{from}: {headers}");
            assert!(!RequestDebug::concerns(&exchange), "the upstream must not see it: {headers}");
        }
    }

    #[test]
    fn times_are_told_by_phase_in_milliseconds() {
        let mut exchange = asked("127.0.0.1", "X-Kong-Request-Debug: *");
        let began = exchange.times().unwrap().began;
        let after = |milliseconds| began + Duration::from_millis(milliseconds);
        let resolved = Resolved { took: Duration::from_millis(2), is_cached: false };
        let address = "192.0.2.7:80".parse().ok();
        let took = Duration::from_millis(5);
        exchange.times().unwrap().opened("orders.test", (address, Some(resolved)), took);
        (exchange.timing.upstream_start, exchange.timing.upstream_head) = (Some(after(1)), Some(after(21)));
        exchange.timing.end = Some(after(101));
        let output = reported(&mut exchange).unwrap();
        assert_eq!(
            (&output["request_id"], &output["workspace_id"]),
            (&json!(exchange.id()), &json!(WORKSPACE))
        );
        let child = &output["child"];
        assert_eq!(child["access"]["total_time"], 3.0, "{output}");
        let resolve = json!({ "total_time": 2.0, "cache_hit": false });
        assert_eq!(child["access"]["child"]["dns"]["child"]["orders.test"]["child"]["resolve"], resolve);
        assert!(child["access"]["child"]["router"]["total_time"].is_number());
        assert_eq!(child["balancer"]["total_time"], 3.0);
        let connections = &child["balancer"]["child"]["connections"]["child"];
        assert_eq!(connections["tcp://192.0.2.7:80"]["child"]["connect"]["total_time"], 3.0);
        assert_eq!(
            child["upstream"],
            json!({ "total_time": 20.0, "child": { "time_to_first_byte": { "total_time": 20.0 } } })
        );
        assert!(child["rewrite"]["total_time"].is_number() && child["header_filter"].is_object());
        assert!(child["log"].is_null() && child["body_filter"].is_null());
        let times = exchange.take_times().unwrap();
        let end = output_of(&exchange, &times.at_end(&exchange));
        assert_eq!(end["child"]["upstream"]["total_time"], 100.0);
        assert_eq!(end["child"]["upstream"]["child"]["streaming"]["total_time"], 80.0);
        assert!(end["child"]["log"].is_object() && end["child"]["body_filter"].is_object());
    }

    fn output_of(exchange: &Exchange, tree: &Tree) -> Value {
        serde_json::from_slice(&output(exchange, tree)).unwrap()
    }

    #[test]
    fn a_long_output_is_cut_and_logged_but_for_clients_on_this_machine() {
        for (from, is_cut) in [("127.0.0.1", false), ("192.0.2.1", true)] {
            let mut exchange =
                asked(from, &format!("X-Kong-Request-Debug: *\nX-Kong-Request-Debug-Token: {TOKEN}"));
            (0..50).for_each(|n| {
                exchange.times().unwrap().opened(&format!("host-{n}"), (None, None), Duration::ZERO)
            });
            let many = |n: u16| (Some(SocketAddr::from(([192, 0, 2, 1], n))), None);
            (1..50).for_each(|n| exchange.times().unwrap().opened("h", many(n), Duration::ZERO));
            let output = reported(&mut exchange).unwrap();
            assert_eq!(output["truncated"] == true, is_cut, "{from}");
            assert_eq!(output["request_id"], exchange.id());
            assert_eq!(exchange.times().unwrap().log, is_cut, "{from}");
        }
    }

    #[test]
    fn what_is_logged_is_cut_between_characters() {
        let text = "é".repeat(MAX_LINE_LEN);
        let found = pieces(&text);
        assert!(found.iter().all(|piece| piece.len() <= MAX_LINE_LEN));
        assert_eq!((found.len(), found.concat()), (2, text.clone()));
        assert_eq!(pieces(&text[..6]), [&text[..6]]);
    }
}
