//! Refuses bots by their `User-Agent`.
//!
//! ```yaml
//! plugins:
//!   - name: bot-detection
//!     config:
//!       allow: ["(?i)googlebot"]
//!       deny: ["^curl/"]
//! ```
//!
//! A client whose `User-Agent` matches a regex of `allow` passes. One that matches `deny` is refused, and so is one
//! that calls itself a bot. Regexes match anywhere in the header. A request without the header passes. A client can
//! send a false `User-Agent` and pass, so the plugin saves work but protects nothing.
//!
//! These count as bots: names that contain `bot` (except the Cubot telephones), `crawl`, `spider`, `scrape`,
//! `archiver`, `indexer` or `slurp`, in any case, and some well-known programs whose names contain none of these, such
//! as `facebookexternalhit`, `Mediapartners-Google` and `Python-urllib`.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 403 | `Forbidden` | the client is a bot, or matches `deny` |
//! | 400 | `Only one User-Agent header allowed` | there are several |

use regex::bytes::{Regex, RegexSet};
use std::sync::LazyLock;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record,
};

/// Which clients pass.
#[derive(Debug, Clone, Record)]
#[record(hint("whitelist", "Kong calls it `allow` since 3.0"))]
#[record(hint("blacklist", "Kong calls it `deny` since 3.0"))]
pub(super) struct Config {
    /// Regexes of clients that pass, even if they match `deny` or are bots.
    #[field(nullable, default = [], matches = regex)]
    pub allow: Vec<String>,
    /// Regexes of clients that are refused.
    #[field(nullable, default = [], matches = regex)]
    pub deny: Vec<String>,
}

/// The programs whose names do not say that they are bots.
const PROGRAMS: &[&str] = &[
    "Apache-HttpClient",
    "AppEngine-Google",
    "Ask Jeeves",
    "BingPreview",
    "BoardReader",
    "Daumoa",
    "facebookexternalhit",
    "favicon",
    "Feedfetcher-Google",
    "Genieo",
    "Google-HTTP-Java-Client",
    "heritrix",
    "HTTrack",
    "ichiro",
    "InternetArchive",
    "Mediapartners-Google",
    "MSIECrawler",
    "NewsGator",
    "Netvibes",
    "Nutch",
    "Pingdom",
    "PagePeeker",
    "Python-urllib",
    "Scrapy",
    "SimplePie",
    "WhatWeb",
    "WinHTTP",
    "WordPress",
    "Xenu Link Sleuth",
    "Yeti/",
    "ZyBorg",
];

static BOTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let programs = PROGRAMS.iter().map(|name| regex::escape(name)).collect::<Vec<_>>().join("|");
    Regex::new(&format!(
        "(?i-u)(?:^|[^u]|(?:^|[^c])u)bot|crawl|spider|scrape|archiver|indexer|slurp|{programs}"
    ))
    .ok()
});

/// One configured instance.
pub(super) struct BotDetection {
    allow: RegexSet,
    deny: RegexSet,
    bots: Regex,
}

impl Plugin for BotDetection {
    const NAME: &'static str = "bot-detection";
    const PRIORITY: i32 = 2500;
    const FOR_CONSUMERS: bool = false;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let set = |field: &str, regexes: &[String]| {
            RegexSet::new(regexes).map_err(|error| format!("config.{field}: {error}; write simpler regexes"))
        };
        let bots = BOTS.as_ref().ok_or("the list of bots does not compile")?;
        let (allow, deny) = (set("allow", &config.allow)?, set("deny", &config.deny)?);
        Ok(Self { allow, deny, bots: bots.clone() })
    }
}

impl Hooks for BotDetection {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let mut agents = exchange.request.headers.get_all_known(Known::UserAgent);
        let (agent, another) = (agents.next(), agents.next());
        if another.is_some() {
            return Flow::Respond(LocalResponse::error(400, "Only one User-Agent header allowed"));
        }
        match agent {
            Some(agent) if self.refuses(agent) => Flow::Respond(LocalResponse::error(403, "Forbidden")),
            _ => Flow::Continue,
        }
    }
}

impl BotDetection {
    fn refuses(&self, agent: &[u8]) -> bool {
        let fits = |set: &RegexSet| !set.is_empty() && set.is_match(agent);
        !fits(&self.allow) && (fits(&self.deny) || self.bots.is_match(agent))
    }
}

#[cfg(test)]
mod tests {
    use super::BOTS;

    #[test]
    fn bots_are_distinguished_from_browsers() {
        let is_bot = |agent: &str| BOTS.as_ref().unwrap().is_match(agent.as_bytes());
        for bot in [
            "Googlebot/2.1 (+http://www.google.com/bot.html)",
            "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
            "Twitterbot/1.0",
            "facebookexternalhit/1.1",
            "Baiduspider+(+http://www.baidu.com/search/spider.htm)",
            "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
            "ia_archiver",
            "Scrapy/2.11 (+https://scrapy.org)",
            "Python-urllib/3.11",
            "bot",
            "ubot",
        ] {
            assert!(is_bot(bot), "{bot}");
        }
        for browser in [
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "Mozilla/5.0 (Linux; Android 12; CUBOT NOTE 30) AppleWebKit/537.36 Chrome/96.0 Mobile Safari/537.36",
            "curl/8.5.0",
            "PostmanRuntime/7.36",
            "",
        ] {
            assert!(!is_bot(browser), "{browser}");
        }
    }
}
