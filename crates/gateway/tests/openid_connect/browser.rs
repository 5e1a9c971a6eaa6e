//! A browser, as far as logins need one: it keeps cookies, and follows redirects only if a test wants it.
use crate::harness::{Gateway, Message};
use std::collections::BTreeMap;

/// The cookies of one gateway.
#[derive(Clone, Default)]
pub(super) struct Browser {
    pub(super) cookies: BTreeMap<String, String>,
}

impl Browser {
    /// Opens a page of the gateway, and keeps the cookies that come with it.
    #[track_caller]
    pub(super) fn get(&mut self, gateway: &Gateway, path: &str) -> Message {
        self.get_with(gateway, path, "")
    }

    /// The same, with more lines of the head.
    #[track_caller]
    pub(super) fn get_with(&mut self, gateway: &Gateway, path: &str, headers: &str) -> Message {
        let response = gateway.get_with(path, &format!("{}{headers}", self.line()));
        self.keep(&response);
        response
    }

    /// The line with the cookies.
    pub(super) fn line(&self) -> String {
        let pairs = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let pairs = pairs.collect::<Vec<_>>().join("; ");
        if pairs.is_empty() { pairs } else { format!("Cookie: {pairs}\r\n") }
    }

    fn keep(&mut self, response: &Message) {
        for set in response.head.all("set-cookie") {
            let (name, rest) = set.split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            if set.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// The cookies of the session, without those of logins.
    pub(super) fn session(&self) -> Vec<&str> {
        self.cookies.keys().filter(|name| !name.contains("_login_")).map(String::as_str).collect()
    }
}

/// Path and query of a URL.
pub(super) fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("/", |at| &rest[at..])
}

/// Where a response sends the browser.
#[track_caller]
pub(super) fn location(response: &Message) -> String {
    assert_eq!(response.status, 302, "{}", response.text());
    response.header("location").unwrap().to_owned()
}
