//! The bodies of error responses: Kong's templates, or those of `error_template_*`.

use std::fmt;
use weir_http1::Known;

/// The content types of error responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// `application/json`
    Json,
    /// `text/plain`
    Plain,
    /// `text/html`
    Html,
    /// `application/xml`
    Xml,
}

/// How error responses are written.
#[derive(Debug, Clone)]
pub struct ErrorTemplates {
    default_type: ErrorType,
    /// One for each type, in the order of [`ErrorType`].
    templates: [Template; 4],
}

/// A text with a place for the message and one for the request's id.
#[derive(Debug, Clone)]
struct Template(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Message,
    RequestId,
}

const KONGS: [&str; 4] = [
    "{\n  \"message\":\"%s\",\n  \"request_id\":\"%s\"\n}",
    "%s\nrequest_id: %s\n",
    "<!doctype html>\n<html>\n  <head>\n    <meta charset=\"utf-8\">\n    <title>Error</title>\n  </head>\n  \
     <body>\n    <h1>Error</h1>\n    <p>%s.</p>\n    <p>request_id: %s</p>\n  </body>\n</html>\n",
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<error>\n  <message>%s</message>\n  <requestid>%s</requestid>\n</error>\n",
];

impl Default for ErrorTemplates {
    fn default() -> Self {
        Self::new(ErrorType::Plain, [const { None }; 4])
    }
}

impl ErrorTemplates {
    /// Templates in place of Kong's, in the order of [`ErrorType`]: the first `%s` is the message, the second the
    /// request's id, and `%%` is `%`. `default_type` is that of the proxy's own errors for clients without `Accept` and `Content-Type`.
    pub fn new(default_type: ErrorType, custom: [Option<&str>; 4]) -> Self {
        let mut kongs = KONGS.into_iter();
        let templates = custom.map(|own| Template::parse(own.or(kongs.next()).unwrap_or_default()));
        // `custom` is mapped in order, so each takes Kong's template of its own type.
        Self { default_type, templates }
    }

    /// The content type and the body of an error. As in Kong, `Content-Type` and the default type count for the proxy's
    /// own errors alone: those of plugins and of routing are JSON for a client without `Accept`.
    pub(crate) fn render<'r>(
        &self,
        (message, id): (&str, &str),
        is_of_proxy: bool,
        header: impl Fn(Known) -> Option<&'r [u8]>,
    ) -> (&'static str, String) {
        let chosen = match header(Known::Accept) {
            Some(accept) => ErrorType::accepted(accept),
            None if is_of_proxy => header(Known::ContentType).map_or(self.default_type, ErrorType::accepted),
            None => ErrorType::Json,
        };
        (chosen.content_type(), self.templates[chosen as usize].render(&chosen.escaped(message), id))
    }
}

impl Template {
    fn parse(text: &str) -> Self {
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        let mut placeholders = [Part::Message, Part::RequestId].into_iter();
        while let Some((before, after)) = rest.split_once('%') {
            literal.push_str(before);
            let placed = after.strip_prefix('s').and_then(|after| Some((after, placeholders.next()?)));
            rest = match placed {
                Some((after, placeholder)) => {
                    parts.extend([Part::Text(std::mem::take(&mut literal)), placeholder]);
                    after
                }
                None => {
                    literal.push('%');
                    after.strip_prefix('%').unwrap_or(after)
                }
            };
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        Self(parts)
    }

    fn render(&self, message: &str, id: &str) -> String {
        let texts = self.0.iter().map(|part| match part {
            Part::Text(text) => &**text,
            Part::Message => message,
            Part::RequestId => id,
        });
        texts.collect()
    }
}

impl ErrorType {
    /// The type of highest quality in `Accept`; JSON if it names none of them.
    fn accepted(accept: &[u8]) -> Self {
        let mut best = (0.0, ErrorType::Json);
        for range in std::str::from_utf8(accept).unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let chosen = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/json" | "application/*" | "*/*" => ErrorType::Json,
                "text/plain" | "text/*" => ErrorType::Plain,
                "text/html" => ErrorType::Html,
                "application/xml" | "text/xml" => ErrorType::Xml,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            if quality > best.0 {
                best = (quality, chosen);
            }
        }
        best.1
    }

    fn content_type(self) -> &'static str {
        match self {
            ErrorType::Json => "application/json; charset=utf-8",
            ErrorType::Plain => "text/plain; charset=utf-8",
            ErrorType::Html => "text/html; charset=utf-8",
            ErrorType::Xml => "application/xml; charset=utf-8",
        }
    }

    fn escaped(self, message: &str) -> String {
        match self {
            ErrorType::Json => {
                let quoted = serde_json::Value::from(message).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            ErrorType::Plain => message.to_owned(),
            ErrorType::Html | ErrorType::Xml => Escaped(message).to_string(),
        }
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(templates: &ErrorTemplates, is_of_proxy: bool, accept: Option<&str>) -> String {
        let header = |known| accept.filter(|_| known == Known::Accept).map(str::as_bytes);
        templates.render(("a \"b\" <c>", "id"), is_of_proxy, header).1
    }

    #[test]
    fn a_template_has_places_for_message_and_id() {
        let custom =
            [Some("{\"m\":\"%s\",\"id\":\"%s\"}"), Some("100%%s %s%"), Some("<p>%s %s %s</p>"), None];
        let templates = ErrorTemplates::new(ErrorType::Html, custom);
        assert_eq!(rendered(&templates, true, None), "<p>a &quot;b&quot; &lt;c&gt; id %s</p>");
        assert_eq!(rendered(&templates, false, None), "{\"m\":\"a \\\"b\\\" <c>\",\"id\":\"id\"}");
        assert_eq!(rendered(&templates, true, Some("text/plain")), "100%s a \"b\" <c>%");
        assert!(rendered(&templates, true, Some("text/xml")).contains("<requestid>id</requestid>"));
    }
}
